//! Search for the input length that fills a fixed room, over a compressor that takes whole inputs
//! only.
//!
//! The plain algorithm: compress a guess; if it does not fill the room, continue along the line
//! through the known points (the secant) until the stream fits and leaves no more than some tenths
//! of a percent of the room unused. Every step costs a whole compression, so everything here serves
//! to need few of them:
//!
//! * the first guess uses the ratio of the previous pcluster, or a better guess of the caller;
//! * with one point known, the second guess uses the slope at the end of the input, which is below
//!   the average (tables and first occurrences come first), as learnt from earlier pclusters;
//! * the end of the input is tried at once if it may fit;
//! * the compressed size is not quite monotone in the length of the input: when the bracket gets
//!   narrow, the search ends with the best length found.

use crate::{CodecError, Filled};

/// First guess before anything is known: input bytes per output byte.
const RATIO_FIRST: f64 = 2.5;
/// Guess after one that did not compress. Above 1; otherwise the search would never find the end of
/// such data.
const RATIO_LOW: f64 = 1.1;
/// Highest ratio of a first guess: text after a run of zeros seldom is another run.
const RATIO_HIGH: f64 = 16.0;
/// Factor by which a guess may grow in one step, so that a run of zeros does not make us read
/// megabytes of other data.
const GROWTH_MAX: usize = 8;
/// Most compressions per pcluster, for data that defeats the secant. About 3 are usual without a
/// good first guess.
const STEPS_MAX: usize = 9;

/// State of the search: what it learnt since the last reset, and a buffer for streams that do not
/// fit.
pub(crate) struct Fit {
    /// Fraction of the room that may stay unused.
    tolerance: f64,
    /// Input bytes per output byte.
    ratio: f64,
    /// Output per input at the end of the room, as a fraction of the average.
    marginal: f64,
    scratch: Vec<u8>,
    encodes: u64,
}

/// Length that was tried, and the length of its stream.
#[derive(Clone, Copy)]
struct Point {
    input: usize,
    output: usize,
}

impl Fit {
    pub(crate) fn new(tolerance: f64) -> Self {
        let mut fit = Fit { tolerance, ratio: 0.0, marginal: 0.0, scratch: Vec::new(), encodes: 0 };
        fit.reset();
        fit
    }

    pub(crate) fn reset(&mut self) {
        (self.ratio, self.marginal) = (RATIO_FIRST, 0.9);
    }

    pub(crate) fn encodes(&self) -> u64 {
        self.encodes
    }

    /// Fills `out` with a prefix of an input of `input_len` bytes, of which `first` bytes are tried
    /// first. `compress` turns a prefix of the given length into a stream and returns its length,
    /// or `None` if it exceeds the buffer.
    pub(crate) fn fill(
        &mut self,
        input_len: usize,
        first: usize,
        out: &mut [u8],
        mut compress: impl FnMut(usize, &mut [u8]) -> Result<Option<usize>, CodecError>,
    ) -> Result<Filled, CodecError> {
        let room = out.len();
        // Streams beyond the room are only measured. Nearly all of them are smaller than this.
        self.scratch.resize(3 * room + 1024, 0);
        let tolerance = (room as f64 * self.tolerance) as usize;
        let (mut fits, mut exceeds): (Option<Point>, Option<Point>) = (None, None);
        let mut len = first;
        for _ in 0..STEPS_MAX {
            self.encodes += 1;
            let output = compress(len, &mut self.scratch)?.unwrap_or(self.scratch.len());
            let point = Point { input: len, output };
            if output <= room {
                out[..output].copy_from_slice(&self.scratch[..output]);
                fits = Some(point);
                if len == input_len || room - output <= tolerance {
                    break;
                }
            } else {
                if fits.is_none() && output + output / 256 >= len {
                    break; // nothing to gain: a shorter prefix would not do better
                }
                exceeds = Some(point);
            }
            match self.next_guess(fits, exceeds, input_len, room - tolerance / 2) {
                Some(next) => len = next,
                None => break,
            }
        }
        Ok(self.learn(fits, exceeds, input_len))
    }

    /// Returns the length that should fill `room`, judged by earlier pclusters.
    pub(crate) fn first_guess(&self, input_len: usize, room: usize) -> usize {
        let guess = (room as f64 * self.ratio) as usize;
        // The end is worth a try if it may fit: if it does, the search is over.
        if input_len <= guess + guess / 16 { input_len } else { guess.max(1) }
    }

    /// Returns the length that should give `goal` bytes of output, strictly between the two points;
    /// `None` if they are too close.
    fn next_guess(&self, fits: Option<Point>, exceeds: Option<Point>, input_len: usize, goal: usize) -> Option<usize> {
        let low = fits.map_or(0, |p| p.input);
        let high = exceeds.map_or(input_len + 1, |p| p.input);
        let step_min = 4 + low / 2048;
        if high - low <= 2 * step_min && fits.is_some() || high - low < 2 {
            return None;
        }
        let slope = match (fits, exceeds) {
            (Some(a), Some(b)) => (b.output - a.output) as f64 / (b.input - a.input) as f64,
            (Some(p), None) | (None, Some(p)) => p.output as f64 / p.input as f64 * self.marginal,
            (None, None) => return None,
        };
        // From the nearer point: the line is only an approximation.
        let near = |p: &Point| p.output.abs_diff(goal);
        let from = fits.into_iter().chain(exceeds).min_by_key(near)?;
        let guess = from.input as f64 + (goal as f64 - from.output as f64) / slope;
        let ceiling = if exceeds.is_none() { low.saturating_mul(GROWTH_MAX).min(input_len) } else { high - 1 };
        let (floor, ceiling) = match fits {
            Some(_) if high - low > 2 * step_min => (low + step_min, ceiling.max(low + step_min)),
            _ => (low + 1, ceiling),
        };
        Some((guess as usize).clamp(floor, ceiling.max(floor)).min(input_len))
    }

    fn learn(&mut self, fits: Option<Point>, exceeds: Option<Point>, input_len: usize) -> Filled {
        if let (Some(a), Some(b)) = (fits, exceeds) {
            let slope = (b.output - a.output) as f64 / (b.input - a.input) as f64;
            let marginal = slope * a.input as f64 / a.output as f64;
            self.marginal += 0.1 * (marginal.clamp(0.5, 1.2) - self.marginal);
        }
        match fits {
            Some(p) if p.input < input_len => {
                self.ratio = (p.input as f64 / p.output as f64).clamp(RATIO_LOW, RATIO_HIGH)
            }
            Some(_) => {} // the end of the input says little about the next one
            None => self.ratio = RATIO_LOW,
        }
        fits.map_or(Filled::default(), |p| Filled { consumed: p.input, produced: p.output })
    }
}
