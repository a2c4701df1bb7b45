//! Writer of zip archives, whose fields may be wrong.

use std::io::Write;

/// Made by Unix, version 3.0 of the format.
const UNIX: u16 = 3 << 8 | 30;
/// 2020-02-29 12:34:56 in MS-DOS format: time, date.
const DOS_TIME: [u16; 2] = [12 << 11 | 34 << 5 | 28, 40 << 9 | 2 << 5 | 29];
/// The same in seconds since 1970.
pub const DOS_TIME_AS_UTC: i64 = 1_582_979_696;

/// A member to write.
#[derive(Clone)]
pub struct Entry {
    pub name: Vec<u8>,
    pub made_by: u16,
    pub attributes: u32,
    pub flags: u16,
    pub method: u16,
    pub packed: Vec<u8>,
    pub len: u32,
    pub crc: u32,
    pub local_extra: Vec<u8>,
    pub central_extra: Vec<u8>,
    /// Index of a member at whose position this one is placed.
    pub shares: Option<usize>,
}

/// Returns a member that is stored uncompressed.
pub fn entry(name: &str, mode: u32, plain: &[u8]) -> Entry {
    Entry {
        name: name.into(),
        made_by: UNIX,
        attributes: mode << 16,
        flags: 0,
        method: 0,
        packed: plain.into(),
        len: plain.len() as u32,
        crc: crc(plain),
        local_extra: Vec::new(),
        central_extra: Vec::new(),
        shares: None,
    }
}

/// Returns a member with compressed contents.
pub fn packed(name: &str, method: u16, plain: &[u8], packed: Vec<u8>) -> Entry {
    Entry { method, packed, ..entry(name, 0o100640, plain) }
}

/// Returns an extra field.
pub fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes(), &(data.len() as u16).to_le_bytes(), data].concat()
}

/// Returns the CRC-32 of contents.
pub fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Returns an archive of members.
pub fn write_zip(entries: &[Entry]) -> Vec<u8> {
    let (mut zip, mut directory, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    let put = |to: &mut Vec<u8>, halves: &[u16]| to.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
    for e in entries {
        let off = e.shares.map_or(zip.len() as u32, |idx| offsets[idx]);
        offsets.push(off);
        let mut common = Vec::new();
        put(&mut common, &[e.flags, e.method, DOS_TIME[0], DOS_TIME[1]]);
        common.extend([e.crc, e.packed.len() as u32, e.len].iter().flat_map(|word| word.to_le_bytes()));
        if e.shares.is_none() {
            zip.extend(b"PK\x03\x04\x14\x00");
            zip.extend(&common);
            put(&mut zip, &[e.name.len() as u16, e.local_extra.len() as u16]);
            zip.extend([&e.name[..], &e.local_extra, &e.packed].concat());
        }
        directory.extend(b"PK\x01\x02");
        put(&mut directory, &[e.made_by, 20]);
        directory.extend(&common);
        put(&mut directory, &[e.name.len() as u16, e.central_extra.len() as u16, 0, 0, 0]);
        directory.extend([e.attributes, off].iter().flat_map(|word| word.to_le_bytes()));
        directory.extend([&e.name[..], &e.central_extra].concat());
    }
    let (count, off) = (entries.len() as u16, zip.len() as u32);
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06");
    put(&mut zip, &[0, 0, count, count]);
    zip.extend([directory.len() as u32, off].iter().flat_map(|word| word.to_le_bytes()));
    put(&mut zip, &[0]);
    zip
}

fn lzma(plain: &[u8], stream: liblzma::stream::Stream) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Compresses with zip's LZMA format. The .lzma encoder ends with a marker.
fn zip_lzma(plain: &[u8]) -> Vec<u8> {
    let options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
    let alone = lzma(plain, liblzma::stream::Stream::new_lzma_encoder(&options).unwrap());
    [&[9, 20, 5, 0][..], &alone[..5], &alone[13..]].concat()
}

fn xz(plain: &[u8]) -> Vec<u8> {
    lzma(plain, liblzma::stream::Stream::new_easy_encoder(1, liblzma::stream::Check::Crc32).unwrap())
}

/// Compresses with deflate.
pub fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(plain: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Returns members for each supported method.
pub fn by_all_methods(plain: &[u8]) -> Vec<Entry> {
    let marked = Entry { flags: 2, ..packed("lzma-marked", 14, plain, zip_lzma(plain)) };
    vec![
        entry("stored", 0o100644, plain),
        packed("deflate", 8, plain, deflate(plain)),
        packed("bzip2", 12, plain, bzip2(plain)),
        packed("lzma", 14, plain, zip_lzma(plain)),
        marked,
        packed("zstd", 93, plain, zstd::encode_all(plain, 1).unwrap()),
        packed("xz", 95, plain, xz(plain)),
    ]
}
