//! Holes in version 1.0 of GNU's sparse format for PAX archives: contents are a map followed by the
//! data.

use super::header::BLOCK_LEN;
use super::pax::Records;
use std::ops::Range;

/// Returns true if a file of `size` bytes has bytes outside of `data`.
pub(super) fn has_holes(data: &[Range<u64>], size: u64) -> bool {
    match data {
        [] => size > 0,
        [whole] => *whole != (0..size),
        _ => true,
    }
}

/// Returns the map: decimal numbers on lines, padded to a whole block. The last entry ends at the
/// end of the file.
pub(super) fn map(data: &[Range<u64>], size: u64) -> Vec<u8> {
    let end = data.last().is_none_or(|last| last.end < size).then_some(size..size);
    let mut map = format!("{}\n", data.len() + usize::from(end.is_some()));
    for range in data.iter().chain(&end) {
        map += &format!("{}\n{}\n", range.start, range.end - range.start);
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_LEN as usize), 0);
    map
}

/// Adds the name and the length of the file; those in the header are of the stored form.
pub(super) fn describe(name: &[u8], size: u64, records: &mut Records) {
    records.add(b"GNU.sparse.major", b"1");
    records.add(b"GNU.sparse.minor", b"0");
    records.add_name(b"GNU.sparse.name", name);
    records.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
}

/// Returns the name for programs that do not support holes.
pub(super) fn stand_in(name: &[u8]) -> Vec<u8> {
    let slash = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (dir, name) = name.split_at(slash);
    [dir, b"GNUSparseFile.0/", name].concat()
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "files of one run of data")]
mod tests {
    use super::*;

    #[test]
    fn maps_end_where_files_do() {
        let map = |data: &[Range<u64>], size| {
            let map = map(data, size);
            assert_eq!(map.len(), 512);
            String::from_utf8(map).unwrap().trim_end_matches('\0').replace('\n', " ")
        };
        assert_eq!(map(&[0..3, 8..10], 10), "2 0 3 8 2 ");
        assert_eq!(map(&[4..6], 10), "2 4 2 10 0 ");
        assert_eq!(map(&[], 10), "1 10 0 ");
        assert!(has_holes(&[], 10) && has_holes(&[1..10], 10) && has_holes(&[0..9], 10));
        assert!(!has_holes(&[0..10], 10) && !has_holes(&[], 0));
    }
}
