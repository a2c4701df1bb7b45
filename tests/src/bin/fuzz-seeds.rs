//! Writes the initial inputs of fuzzing: valid streams and maps, so that fuzzing need not guess
//! them.

use kiln_codec::{Encoder, Method, Spec};
use kiln_format::chunk::{ChunkEntry, ChunkFormat};
use kiln_format::generation::{GenerationEnd, GenerationRecord, HEAD_LEN};
use kiln_format::inode::{CompactTimes, Epoch, FileType, IndexKind, Inode, InodeData};
use kiln_format::zmap::{Advise, FULL_INDEX_OFF, HeadKind, Lcluster, MapHeader};
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use kiln_tests::data::Texture;
use kiln_tests::records::plain_inode;
use std::path::Path;
use std::{env, fs, io};

const METHODS: [(&str, Method); 4] =
    [("lz4", Method::Lz4), ("lzma", Method::Lzma), ("deflate", Method::Deflate), ("zstd", Method::Zstd)];
/// First data block of the map target, with blocks of 512 bytes.
const DATA_BLOCK: u32 = 13;
const BLOCK_LEN: usize = 512;
const BLOCK_BITS: u8 = 9;
const COMPRESSED: InodeData = InodeData::Compressed { index: IndexKind::Full, blocks: 0 };

fn block_bits() -> BlockBits {
    BlockBits::new(BLOCK_BITS).expect("9 to 16")
}

fn main() -> io::Result<()> {
    let dir = env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let put = |target: &str, name: &str, bytes: Vec<u8>| {
        let dir = Path::new(&dir).join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("seed-{name}")), bytes)
    };
    for (name, method) in METHODS {
        for (texture, len) in [(Texture::Text, 3000), (Texture::Binary, 900), (Texture::Zeros, 2000)] {
            let plain = texture.bytes(7, len);
            let header = [&(len as u32).to_le_bytes()[..], &(len as u16 / 10).to_le_bytes(), &[4, 6]].concat();
            put(name, &format!("{texture:?}"), [header, stream(method, &plain)].concat())?;
        }
        let plain = Texture::Text.bytes(3, 1500);
        let stream = stream(method, &plain);
        put("map", &format!("full-{name}"), full_index(method, &plain, &stream))?;
        put("map", &format!("records-{name}"), records(method, &plain, &stream))?;
    }
    let flat = inode(InodeData::FlatPlain(Some(Blkaddr(DATA_BLOCK.into()))), 1500);
    put("map", "flat", crafted(&flat, &Texture::Text.bytes(3, 1500)))?;
    let table = InodeData::ChunkBased(Ok(ChunkFormat { chunk_bits: BLOCK_BITS, entry: ChunkEntry::BlockMap }));
    let chunks: Vec<u8> = [DATA_BLOCK + 1, u32::MAX, DATA_BLOCK].into_iter().flat_map(u32::to_le_bytes).collect();
    put("map", "chunks", crafted(&[inode(table, 1500), chunks].concat(), &[b'c'; 1100]))?;
    for (name, bytes) in generations() {
        put("generation", name, bytes)?;
    }
    // Patches of the records of the last generation, and of its end.
    put("updated-image", "as-it-is", vec![0])?;
    put("updated-image", "another-number", [&[1][..], &[0x23, 16, 0, 2, 0, 0, 0]].concat())?;
    put("updated-image", "another-head", [&[1][..], &[0x33, 80, 0, 0xFF, 0, 0, 0]].concat())?;
    put("updated-image", "another-position", [&[1][..], &[0x43, 8, 0, 0, 0x10, 0, 0]].concat())?;
    let list = b"#kiln-hotlist 1\n0+0\t12\tusr/lib\n\n# a note\n131072+4096\t80\tusr/lib/libc.so.6\n0+312\t2904\t/etc/a\\011b\n0+0\t2905\t.\n";
    put("hot-list", "list", list.to_vec())?;
    put("hot-list", "overlaps", b"#kiln-hotlist 1\n0+100\t1\ta\n50+100\t2\ta\n0+9223372036854775807\t3\ta\n".to_vec())?;
    let stamps =
        b"#kiln-stamp 1 0aff\n000102030405060708090a0b0c0d0e0f usr/a\\012b\nffffffffffffffffffffffffffffffff c\n";
    put("stamps", "two", stamps.to_vec())?;
    put("composefs-dump", "types", composefs_dump().into_bytes())?;
    let fragment = (1u64 << 63 | 100).to_le_bytes().to_vec();
    put("map", "fragment", crafted(&[inode(COMPRESSED, 900), fragment].concat(), &[b'f'; 1100]))
}

/// Returns inputs of the generation target: valid records and an end, unchanged and with checksums
/// to be corrected.
fn generations() -> Vec<(&'static str, Vec<u8>)> {
    let record = GenerationRecord {
        number: 2,
        restored: Some(1),
        position: 1 << 20,
        previous: Some(4096),
        time: 1_700_000_000,
        label: "update /srv".to_owned(),
        head: [7; HEAD_LEN],
    };
    let first = GenerationRecord { number: 1, restored: None, previous: None, ..record.clone() };
    let end = GenerationEnd { number: 2, position: 1 << 20, end: 2 << 20 };
    let input = |kind: u8, at: u64, bytes: &[u8]| [&[kind], &at.to_le_bytes()[..], bytes].concat();
    vec![
        ("record", input(0, record.position, &record.encode().expect("fits"))),
        ("first", input(1, first.position, &first.encode().expect("fits"))),
        ("end", input(1, end.end, &end.encode())),
    ]
}

fn stream(method: Method, plain: &[u8]) -> Vec<u8> {
    let spec = Spec::new(method, None, 4096).expect("a default");
    let mut out = vec![0; 4096];
    let filled = Encoder::new(&spec).and_then(|mut encoder| encoder.fill(plain, &mut out)).expect("encodes");
    assert_eq!(filled.consumed, plain.len());
    out.truncate(filled.produced);
    out
}

fn inode(data: InodeData, size: u64) -> Vec<u8> {
    let inode = Inode { permissions: 0o644, nlink: 1, ..plain_inode(FileType::Regular, data, size) };
    inode.encode(Epoch::default(), CompactTimes::Shared, block_bits()).expect("fits")
}

/// Returns an input of the map target: blocks of 512 bytes, all features.
fn crafted(inode: &[u8], data: &[u8]) -> Vec<u8> {
    [&[0, 0][..], &(inode.len() as u16).to_le_bytes(), inode, data].concat()
}

fn algorithm(method: Method) -> u8 {
    Algorithm::ALL.into_iter().position(|algorithm| algorithm == method.algorithm()).expect("one of all") as u8
}

/// Returns one extent under a full index, in blocks that end with its stream.
fn full_index(method: Method, plain: &[u8], stream: &[u8]) -> Vec<u8> {
    let blocks = stream.len().div_ceil(BLOCK_LEN);
    let header = MapHeader {
        advise: Advise::BIG_PCLUSTER_1,
        algorithms: [algorithm(method), 0],
        lcluster_bits: BLOCK_BITS,
        fragment_off: 0,
        idata_len: 0,
        extent_count: 0,
    };
    let mut map = header.encode(block_bits()).expect("fits").to_vec();
    map.resize(FULL_INDEX_OFF as usize, 0);
    let blkaddr = Blkaddr(DATA_BLOCK.into());
    let head = Lcluster::Head { kind: HeadKind::Head1, clusterofs: 0, blkaddr, partial: false };
    let count = plain.len().div_ceil(BLOCK_LEN) as u32;
    let nonhead =
        |back| Lcluster::Nonhead { back, forward: count - back, cblkcnt: (back == 1).then_some(blocks as u32) };
    for entry in [head].into_iter().chain((1..count).map(nonhead)) {
        map.extend(entry.encode_full().expect("fits"));
    }
    let padding = vec![0; blocks * BLOCK_LEN - stream.len()];
    let inode = inode(COMPRESSED, plain.len() as u64);
    crafted(&[inode, map].concat(), &[&padding, stream].concat())
}

/// Returns a record of 16 bytes: one extent of a stream at any byte.
fn records(method: Method, plain: &[u8], stream: &[u8]) -> Vec<u8> {
    let word = stream.len() as u32 | (u32::from(algorithm(method)) + 1) << 28;
    let pa = u64::from(DATA_BLOCK) * BLOCK_LEN as u64 + 5;
    let map = [&[1, 0, 0, 0, 5, 0, 0, 0][..], &[0; 8], &word.to_le_bytes(), &pa.to_le_bytes(), &[0; 4]].concat();
    let inode = inode(COMPRESSED, plain.len() as u64);
    crafted(&[inode, map].concat(), &[&[0; 5], stream].concat())
}

/// Returns a dump with files of all types, hard links, a whiteout, an object and attributes.
fn composefs_dump() -> String {
    let digest = "ab".repeat(32);
    let object = format!("ab/{}", &digest[2..]);
    [
        "/ 4096 40755 3 0 0 0 1.5 - - - security.selinux=a",
        "/block 0 60600 1 0 6 259 0.0 - - -",
        "/d 0 40755 2 1000 1000 0 7.0 - - - user.overlay.opaque=y trusted.overlay.x=\\x00",
        "/d/a\\x20b\\n 0 20644 1 0 0 0 0.0 - - -",
        "/fifo 0 10600 1 0 0 0 0.0 - - -",
        "/inline 6 100644 2 0 0 0 0.0 - hello\\n - user.a=b security.selinux=a",
        &format!("/object 9999 100755 1 0 0 0 0.999999999 {object} - {digest}"),
        "/socket 0 140600 1 0 0 0 0.0 - - -",
        "/symlink 7 120777 1 0 0 0 0.0 ../\\x2d\\\\ - -",
        "/z 0 @100644 2 0 0 0 0.0 /inline - -",
    ]
    .map(|line| format!("{line}\n"))
    .concat()
}
