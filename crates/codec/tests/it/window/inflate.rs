//! A simple inflater that measures match distances: libraries always have a window of 32 KiB.

/// Decodes a stream. Returns its text and its longest distance in bytes. Panics if it is malformed.
pub fn inflate(stream: &[u8]) -> (Vec<u8>, usize) {
    let (mut bits, mut text, mut farthest) = (Bits { stream, at: 0 }, Vec::new(), 0);
    loop {
        let is_last = bits.take(1) == 1;
        match bits.take(2) {
            0 => {
                bits.at = bits.at.next_multiple_of(8);
                let len = bits.take(16);
                assert_eq!(bits.take(16), len ^ 0xFFFF);
                text.extend((0..len).map(|_| bits.take(8) as u8));
            }
            kind => {
                let (litlen, dist) = if kind == 1 { fixed() } else { described(&mut bits) };
                farthest = farthest.max(coded(&mut bits, &litlen, &dist, &mut text));
            }
        }
        if is_last {
            return (text, farthest);
        }
    }
}

struct Bits<'a> {
    stream: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> usize {
        let bit = |at: usize| usize::from(self.stream[at / 8] >> (at % 8) & 1);
        let value = (0..count).map(|i| bit(self.at + i) << i).sum();
        self.at += count;
        value
    }
}

/// Code: (length, bits from the first on, symbol).
struct Code(Vec<(usize, usize, usize)>);

impl Code {
    fn new(lens: &[usize]) -> Self {
        let (mut next, mut code) = (0, Vec::new());
        for len in 1..=15 {
            for (symbol, _) in lens.iter().enumerate().filter(|(_, of)| **of == len) {
                code.push((len, next, symbol));
                next += 1;
            }
            next <<= 1;
        }
        Code(code)
    }

    fn take(&self, bits: &mut Bits<'_>) -> usize {
        let (mut len, mut value) = (0, 0);
        for &(of, word, symbol) in &self.0 {
            while len < of {
                (len, value) = (len + 1, value << 1 | bits.take(1));
            }
            if word == value {
                return symbol;
            }
        }
        panic!("no symbol has these bits")
    }
}

fn fixed() -> (Code, Code) {
    let litlen = [[8; 144].as_slice(), &[9; 112], &[7; 24], &[8; 8]].concat();
    (Code::new(&litlen), Code::new(&[5; 30]))
}

fn described(bits: &mut Bits<'_>) -> (Code, Code) {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (litlens, dists, count) = (bits.take(5) + 257, bits.take(5) + 1, bits.take(4) + 4);
    let mut lens_of_lens = [0; 19];
    for symbol in &ORDER[..count] {
        lens_of_lens[*symbol] = bits.take(3);
    }
    let (code, mut lens) = (Code::new(&lens_of_lens), Vec::new());
    while lens.len() < litlens + dists {
        let (len, times) = match code.take(bits) {
            16 => (*lens.last().unwrap(), 3 + bits.take(2)),
            17 => (0, 3 + bits.take(3)),
            18 => (0, 11 + bits.take(7)),
            len => (len, 1),
        };
        lens.extend(std::iter::repeat_n(len, times));
    }
    (Code::new(&lens[..litlens]), Code::new(&lens[litlens..]))
}

/// Appends the text of a block, and returns its longest distance.
fn coded(bits: &mut Bits<'_>, litlen: &Code, dist: &Code, text: &mut Vec<u8>) -> usize {
    let mut farthest = 0;
    loop {
        let len = match litlen.take(bits) {
            literal @ 0..256 => {
                text.push(literal as u8);
                continue;
            }
            256 => return farthest,
            symbol @ 257..265 => symbol - 254,
            285 => 258,
            symbol => {
                let extra = (symbol - 261) / 4;
                3 + ((4 + (symbol - 261) % 4) << extra) + bits.take(extra)
            }
        };
        let back = match dist.take(bits) {
            symbol @ 0..4 => symbol + 1,
            symbol => {
                let extra = symbol / 2 - 1;
                1 + ((2 + symbol % 2) << extra) + bits.take(extra)
            }
        };
        farthest = farthest.max(back);
        (0..len).for_each(|_| text.push(text[text.len() - back]));
    }
}
