//! PAX records: text for values that do not fit into a header.

/// PAX records under construction.
#[derive(Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// True if a name is not UTF-8.
    is_binary: bool,
}

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a record with any value.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        add(&mut self.bytes, key, value);
    }

    /// Adds a record whose value is a name.
    pub(super) fn add_name(&mut self, key: &[u8], name: &[u8]) {
        self.is_binary |= str::from_utf8(name).is_err();
        self.add(key, name);
    }

    /// Adds an extended attribute. A key ends at the first `=`, so GNU tar writes `=` in a name as
    /// `%3D`, and decodes it again.
    pub(super) fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'=' => key.extend(b"%3D"),
                b'%' if name.contains(&b'=') || is_escape(name) => key.extend(b"%25"),
                byte => key.push(byte),
            }
        }
        self.add(&key, value);
    }

    /// Returns all records.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_binary {
            add(&mut bytes, b"hdrcharset", b"BINARY");
        }
        bytes.extend(self.bytes);
        bytes
    }
}

/// Returns true if a name contains a sequence that would be decoded.
fn is_escape(name: &[u8]) -> bool {
    name.windows(3).any(|three| three == b"%3D" || three == b"%25")
}

/// Appends a record. It begins with its length, including the digits of the length itself.
fn add(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3; // a space, `=`, a line feed
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    bytes.extend(format!("{len} ").as_bytes());
    bytes.extend(key);
    bytes.push(b'=');
    bytes.extend(value);
    bytes.push(b'\n');
}

/// Returns seconds since 1970 as a decimal fraction. Nanoseconds in an image count forward even
/// before 1970.
pub(super) fn time(secs: i64, nsec: u32) -> String {
    let nsecs = i128::from(secs) * 1_000_000_000 + i128::from(nsec);
    let sign = if nsecs < 0 { "-" } else { "" };
    let (whole, fraction) = (nsecs.unsigned_abs() / 1_000_000_000, nsecs.unsigned_abs() % 1_000_000_000);
    match fraction {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{}", format!("{fraction:09}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_themselves() {
        for value_len in (0..120).chain(980..1010).chain([99_980, 99_985, 99_990]) {
            let mut bytes = Vec::new();
            add(&mut bytes, b"key", &vec![b'v'; value_len]);
            let digits = bytes.iter().position(|&byte| byte == b' ').unwrap();
            let told: usize = str::from_utf8(&bytes[..digits]).unwrap().parse().unwrap();
            assert_eq!(told, bytes.len(), "{value_len}");
        }
    }

    #[test]
    fn times_are_decimal_fractions() {
        assert_eq!(time(0, 0), "0");
        assert_eq!(time(5, 500_000_000), "5.5");
        assert_eq!(time(-2, 500_000_000), "-1.5");
        assert_eq!(time(-1, 999_999_999), "-0.000000001");
        assert_eq!(time(i64::MIN, 0), "-9223372036854775808");
        assert_eq!(time(i64::MAX, 999_999_999), "9223372036854775807.999999999");
    }

    #[test]
    fn names_of_attributes_hold_any_character() {
        let key = |name: &[u8]| {
            let mut records = Records::default();
            records.add_xattr(name, b"");
            let bytes = records.finish();
            bytes.split(|&byte| byte == b' ').nth(1).unwrap().to_vec()
        };
        assert_eq!(key(b"user.a%b"), b"SCHILY.xattr.user.a%b=\n");
        assert_eq!(key(b"user.a=%b"), b"SCHILY.xattr.user.a%3D%25b=\n");
        assert_eq!(key(b"user.%3D"), b"SCHILY.xattr.user.%253D=\n");
    }
}
