//! Length of equal text at two places, read in windows: matches of gigabytes take the memory of short ones.

use super::{Place, Text};

/// The first window is short, as most comparisons end soon; then they grow.
const WINDOW_MIN: u64 = 8 << 10;
const WINDOW_MAX: u64 = 64 << 10;

/// Compares text; owns the windows.
#[derive(Default)]
pub(super) struct Extender {
    windows: [Vec<u8>; 2],
    compared: u64,
}

impl Extender {
    /// Returns the length of the common prefix of the text at both places, at most `most`.
    ///
    /// # Errors
    /// Errors of the text.
    pub(super) fn forward<T: Text>(&mut self, text: &mut T, places: [Place; 2], most: u64) -> Result<u64, T::Error> {
        self.extend(most, |windows, done, len| {
            let [a, b] = read(text, windows, places.map(|place| Place { off: place.off + done, ..place }), len)?;
            Ok(common_prefix(a, b))
        })
    }

    /// Returns the length of the common suffix of the text before both places, at most `most`.
    ///
    /// # Errors
    /// Errors of the text.
    pub(super) fn backward<T: Text>(&mut self, text: &mut T, places: [Place; 2], most: u64) -> Result<u64, T::Error> {
        self.extend(most, |windows, done, len| {
            let back = done + len as u64;
            let [a, b] = read(text, windows, places.map(|place| Place { off: place.off - back, ..place }), len)?;
            Ok(common_suffix(a, b))
        })
    }

    /// Returns the bytes compared so far, counted once for both sides.
    pub(super) fn compared_bytes(&self) -> u64 {
        self.compared
    }

    /// Continues window by window, as long as they are equal.
    fn extend<E>(
        &mut self,
        most: u64,
        mut agree: impl FnMut(&mut [Vec<u8>; 2], u64, usize) -> Result<usize, E>,
    ) -> Result<u64, E> {
        let (mut done, mut window) = (0, WINDOW_MIN);
        while done < most {
            let len = window.min(most - done) as usize;
            let same = agree(&mut self.windows, done, len)?;
            self.compared += len as u64;
            done += same as u64;
            if same < len {
                break;
            }
            window = WINDOW_MAX.min(2 * window);
        }
        Ok(done)
    }
}

fn read<'a, T: Text>(
    text: &mut T,
    windows: &'a mut [Vec<u8>; 2],
    places: [Place; 2],
    len: usize,
) -> Result<[&'a [u8]; 2], T::Error> {
    for (window, place) in windows.iter_mut().zip(places) {
        window.resize(window.len().max(len), 0);
        text.read(place.stream, place.off, &mut window[..len])?;
    }
    let [a, b] = windows;
    Ok([&a[..len], &b[..len]])
}

/// Bytes compared at once.
const STEP: usize = 64;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let steps = a.chunks(STEP).zip(b.chunks(STEP)).take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    steps + a[steps..].iter().zip(&b[steps..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let steps = a.rchunks(STEP).zip(b.rchunks(STEP)).take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    let (a, b) = (&a[..a.len() - steps], &b[..b.len() - steps]);
    steps + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_suffixes_end_at_the_first_difference() {
        for len in [0, 1, 63, 64, 65, 200] {
            let a: Vec<u8> = (0..len).map(|idx| idx as u8).collect();
            assert_eq!((common_prefix(&a, &a), common_suffix(&a, &a)), (len, len));
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 1;
                assert_eq!((common_prefix(&a, &b), common_suffix(&a, &b)), (at, len - 1 - at));
            }
        }
    }

    struct Pair([Vec<u8>; 2]);

    impl Text for Pair {
        type Error = ();

        fn gains(&mut self, _: Place, _: u64) -> Result<bool, Self::Error> {
            Ok(true)
        }

        fn read(&mut self, stream: u32, off: u64, buf: &mut [u8]) -> Result<(), ()> {
            assert!(buf.len() as u64 <= WINDOW_MAX);
            buf.copy_from_slice(&self.0[stream as usize][off as usize..][..buf.len()]);
            Ok(())
        }
    }

    #[test]
    fn windows_leave_no_trace() {
        const LEN: usize = 300_000;
        let mut extender = Extender::default();
        let base: Vec<u8> = (0..LEN).map(|idx| ((idx * idx) >> 7) as u8).collect();
        let places = |off| [0, 1].map(|stream| Place { stream, off });
        for at in [0, 1, 8191, 8192, 8193, 24_575, 24_576, 150_000, LEN - 1] {
            let mut other = base.clone();
            other[at] ^= 0x80;
            let mut text = Pair([base.clone(), other]);
            assert_eq!(extender.forward(&mut text, places(0), LEN as u64), Ok(at as u64));
            assert_eq!(extender.backward(&mut text, places(LEN as u64), LEN as u64), Ok((LEN - 1 - at) as u64));
            assert_eq!(extender.forward(&mut text, places(0), at as u64), Ok(at as u64), "not past the limit");
        }
    }
}
