//! Parsing and formatting of sizes.

use std::fmt;

/// Parses `4096`, `64k`, `1M`, `2GiB`, as everywhere in kiln. Drop-in names parse sizes like the programs that they
/// stand for.
pub fn parse(text: &str) -> Result<u64, String> {
    kiln_codec::parse_size(text).map_err(|error| error.to_string())
}

/// A count of bytes for people: `0 B`, `1.2 GiB`.
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.96 would be shown as 1024.0.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown() {
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1288490189, "1.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Human(size).to_string(), text);
        }
    }
}
