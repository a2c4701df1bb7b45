//! Builder of archives, byte by byte.

/// An archive under construction.
#[derive(Clone, Default)]
pub struct Archive(pub Vec<u8>);

/// Returns a ustar header with a correct checksum, to be changed by [`patch`].
pub fn header(name: &str, flag: u8, size: u64) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000007\0");
    header[116..124].copy_from_slice(b"0000010\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[136..148].copy_from_slice(b"00000000144\0");
    header[156] = flag;
    header[257..265].copy_from_slice(b"ustar\x0000");
    patch(&mut header, 0, b"");
    header
}

/// Writes `bytes` at `at` of a header, and updates its checksum.
pub fn patch(header: &mut [u8; 512], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Returns a PAX record with its length.
pub fn record(keyword: &str, value: &[u8]) -> Vec<u8> {
    let text_len = keyword.len() + value.len() + 3;
    let len = (text_len..).find(|len| len.to_string().len() + text_len == *len).unwrap();
    [format!("{len} {keyword}=").as_bytes(), value, b"\n"].concat()
}

impl Archive {
    /// Appends a header and data.
    pub fn raw(mut self, header: &[u8; 512], data: &[u8]) -> Self {
        self.0.extend_from_slice(header);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Appends a member.
    pub fn member(self, name: &str, flag: u8, data: &[u8]) -> Self {
        self.raw(&header(name, flag, data.len() as u64), data)
    }

    /// Appends a link of any type.
    pub fn link(self, name: &str, flag: u8, target: &str) -> Self {
        let mut header = header(name, flag, 0);
        patch(&mut header, 157, target.as_bytes());
        self.raw(&header, b"")
    }

    /// Appends an extended header for the next member.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let payload: Vec<u8> = records.iter().flat_map(|(keyword, value)| record(keyword, value)).collect();
        self.member("pax", b'x', &payload)
    }

    /// Returns the archive with its end mark.
    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}
