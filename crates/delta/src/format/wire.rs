//! Encoding of numbers in patches: LEB128, with zigzag for signed numbers.

use crate::error::PatchDefect;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Decoder of the fields of a record in memory.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    /// Name of the record, for errors.
    record: &'static str,
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(record: &'static str, bytes: &'a [u8]) -> Self {
        Self { bytes, record, at: 0 }
    }

    /// Returns an error about the field that was just read.
    pub(crate) fn defect(&self, field: &'static str, value: u64, reason: &'static str) -> PatchDefect {
        PatchDefect { record: self.record, at: self.at as u64, field, value, reason }
    }

    pub(crate) fn bytes(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], PatchDefect> {
        let rest = &self.bytes[self.at..];
        match rest.get(..len) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.defect(field, rest.len() as u64, "is truncated")),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], PatchDefect> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn number(&mut self, field: &'static str) -> Result<u64, PatchDefect> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(field, 1)?[0];
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.defect(field, value, "exceeds 64 bits"))
    }

    pub(crate) fn number_up_to(&mut self, field: &'static str, max: u64) -> Result<u64, PatchDefect> {
        let value = self.number(field)?;
        if value > max { Err(self.defect(field, value, "exceeds the maximum")) } else { Ok(value) }
    }

    pub(crate) fn signed(&mut self, field: &'static str) -> Result<i64, PatchDefect> {
        let value = self.number(field)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let signed = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN];
        let mut out = Vec::new();
        values.iter().for_each(|value| put(&mut out, *value));
        signed.iter().for_each(|value| put_signed(&mut out, *value));
        let mut fields = Fields::new("test", &out);
        values.iter().for_each(|value| assert_eq!(fields.number("n"), Ok(*value)));
        signed.iter().for_each(|value| assert_eq!(fields.signed("s"), Ok(*value)));
        assert!(fields.is_at_end());
    }

    #[test]
    fn invalid_numbers_are_errors() {
        assert!(Fields::new("test", &[0x80]).number("n").is_err());
        assert!(Fields::new("test", &[0xFF; 12]).number("n").is_err());
        let mut most = vec![0xFF; 9];
        most.push(2);
        assert!(Fields::new("test", &most).number("n").is_err());
    }
}
