//! Readers of sources. For any bytes, a scan ends with a tree or an error, and every file of the
//! tree can be read.

use kiln_source::manifest::{parse_device_table, parse_fs_config, read_pseudo};
use kiln_source::{KINDS, ScanOptions, SourceError, SourceKind, SourceOptions, SpoolLimit, StreamFormat, open_as};
use kiln_tree::policy::{Policy, apply};
use kiln_tree::{Kind, Tree};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Maximum number of bytes that a source may spool.
const SPOOL_MAX_LEN: u64 = 1 << 24;
/// Maximum number of files of a tree that are read.
const FILES: usize = 200;
/// Number of bytes read at the start and at the end of each file.
const PART_LEN: u64 = 1 << 16;
/// Maximum number of runs of data requested in each file.
const RUNS: usize = 100;
/// Maximum number of decompressed bytes.
const PLAIN_MAX_LEN: u64 = 1 << 22;
const PATH: &str = "input";
/// Byte ranges of the magic and of the checksum in a header of a tar archive.
const USTAR_MAGIC: Range<usize> = 257..262;
const USTAR_CHECKSUM: Range<usize> = 148..156;
const CRAMFS_FLAGS: Range<usize> = 8..12;

static GOING: AtomicBool = AtomicBool::new(false);

/// Input: an archive. It is read as it is, and with valid checksums of headers, because otherwise
/// the code after them would not be reached.
pub fn tar(data: &[u8]) {
    source("tar", data);
    let mut summed = data.to_vec();
    let (records, _) = summed.as_chunks_mut();
    for record in records.iter_mut().filter(|record| record[USTAR_MAGIC].starts_with(b"ustar")) {
        set_checksum(record);
    }
    source("tar", &summed);
}

pub fn cpio(data: &[u8]) {
    source("cpio", data);
}

pub fn zip(data: &[u8]) {
    source("zip", data);
}

pub fn squashfs(data: &[u8]) {
    source("squashfs", data);
}

pub fn ext4(data: &[u8]) {
    source("ext4", data);
}

/// Input: an image. It is read as it is, and without the flag that announces a CRC.
pub fn cramfs(data: &[u8]) {
    source("cramfs", data);
    let mut unchecked = data.to_vec();
    if let Some(flags) = unchecked.get_mut(CRAMFS_FLAGS) {
        let (first, last) = (flags[0], flags[3]);
        // In both byte orders.
        (flags[0], flags[3]) = (first & !1, if first == 0 { last & !1 } else { last });
    }
    source("cramfs", &unchecked);
}

pub fn mtree(data: &[u8]) {
    source("mtree", data);
}

/// Input: the JSON documents of a container image in the archive of `docker save`: its list of
/// images, a zero byte, and the record of an image. After a second zero byte, a layer.
pub fn oci(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let members = [("manifest.json", part()), ("config.json", part()), ("layer.tar", part())];
    let mut archive: Vec<u8> = members.iter().flat_map(|(name, bytes)| member(name, bytes)).collect();
    archive.extend([0; 1024]);
    source("oci", &archive);
}

/// Input: definitions, used as a whole tree, and as changes of an empty tree.
pub fn pseudo(data: &[u8]) {
    let definitions = InMemory::new(data);
    if let Ok(edits) = read_pseudo(&definitions.path) {
        change(&Policy { edits: vec![edits], ..Policy::default() });
    }
    source("pseudo", data);
}

pub fn device_table(data: &[u8]) {
    if let Ok(edits) = parse_device_table(data, Path::new(PATH)) {
        change(&Policy { edits: vec![edits], ..Policy::default() });
    }
}

pub fn fs_config(data: &[u8]) {
    if let Ok(list) = parse_fs_config(data, PATH, b"system") {
        change(&Policy { fs_config: Some(list), ..Policy::default() });
    }
}

/// Input: streams of all compressions except that of members of archives.
pub fn compressed(data: &[u8]) {
    let Some(compression) = StreamFormat::of(data) else { return };
    let decode = |data: &[u8]| {
        let Ok(decoder) = compression.decoder(Box::new(data)) else { return (Vec::new(), false) };
        let mut plain = Vec::new();
        let is_whole = decoder.take(PLAIN_MAX_LEN).read_to_end(&mut plain).is_ok();
        (plain, is_whole)
    };
    let (plain, is_whole) = decode(data);
    // Earlier streams must not have an effect.
    assert!((plain, is_whole) == decode(data), "decoded twice, it differs");
}

/// A file without a name.
struct InMemory {
    /// Open descriptor, which keeps the path valid.
    file: File,
    path: PathBuf,
}

impl InMemory {
    fn new(bytes: &[u8]) -> Self {
        let mut file = File::from(memfd_create(PATH, MemfdFlags::CLOEXEC).expect("memory"));
        file.write_all(bytes).expect("memory");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self { file, path }
    }
}

/// Scans `data` as a source of this kind, both strictly and leaving out what cannot be read, and
/// reads the files of the tree.
fn source(kind: &str, data: &[u8]) {
    let kinds: Vec<SourceKind> = KINDS.iter().filter(|known| known.name == kind).copied().collect();
    assert_eq!(kinds.len(), 1, "a kind {kind}");
    let input = InMemory::new(data);
    let place = SourceOptions {
        spool_dir: Some(spool_dir()),
        spool_limit: SpoolLimit::new(SPOOL_MAX_LEN),
        ..SourceOptions::default()
    };
    let strict = ScanOptions::new(&GOING);
    let scan = |options: &ScanOptions<'_>| open_as(&kinds, &input.path, &place)?.scan(options);
    let is_whole = scan(&strict).map_err(|error| look_at(&error)).is_ok();
    match scan(&ScanOptions { keep_going: true, ..strict }) {
        Ok(found) => {
            assert!(found.skipped.is_empty() || !is_whole, "left out of a tree that was read whole");
            read(&found.tree);
        }
        Err(error) => {
            look_at(&error);
            assert!(!is_whole || matches!(error, SourceError::Unreadable(_)), "read strictly, but not so: {error}");
        }
    }
    drop(input.file);
}

/// Returns a directory for spools, in memory if the system supports it.
fn spool_dir() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() }
}

/// Checks that an error has a message, and is not an interruption.
fn look_at(error: &SourceError) {
    assert!(!error.to_string().is_empty());
    assert!(!matches!(error, SourceError::Interrupted));
}

/// Reads parts of the first files, and checks that reading twice gives the same bytes.
fn read(tree: &Tree) {
    let (mut first, mut second) = (vec![0x11; PART_LEN as usize], vec![0x22; PART_LEN as usize]);
    let files = tree.nodes().filter_map(|(id, node)| match node.kind {
        Kind::File { len, .. } => Some((id, len)),
        _ => None,
    });
    for (id, len) in files.take(FILES) {
        let Ok(mut content) = tree.open(id) else { continue };
        let part = len.min(PART_LEN) as usize;
        for off in [0, len - part as u64] {
            let read_once = content.read_exact_at(&mut first[..part], off).is_ok();
            let read_again = content.read_exact_at(&mut second[..part], off).is_ok();
            assert_eq!(read_once, read_again, "a file is read, but not twice");
            assert!(!read_once || first[..part] == second[..part], "what is read twice differs");
        }
        let mut at = 0;
        for _ in 0..RUNS {
            let Ok(Some(run)) = content.next_data(at) else { break };
            assert!(run.start < run.end && at < run.end && run.end <= len, "data {run:?} from {at} on, of {len} bytes");
            at = run.end;
        }
        drop(content.verify_unchanged());
    }
}

/// Applies `policy` to a tree with a file, a directory and a link.
fn change(policy: &Policy) {
    let archive = [member("etc/passwd", b"root"), member("bin/sh", b"sh"), vec![0; 1024]].concat();
    let input = InMemory::new(&archive);
    let kinds: Vec<SourceKind> = KINDS.iter().filter(|known| known.name == "tar").copied().collect();
    let source = open_as(&kinds, &input.path, &SourceOptions::default()).expect("an archive");
    let tree = source.scan(&ScanOptions::new(&GOING)).expect("two files").tree;
    drop(input.file);
    if let Ok(tree) = apply(tree, policy) {
        read(&tree);
    }
}

/// Returns a file as a member of a tar archive.
fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..124].copy_from_slice(b"0000644\x000000000\x000000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    set_checksum(&mut header);
    let mut member = [&header, bytes].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

fn set_checksum(header: &mut [u8; 512]) {
    header[USTAR_CHECKSUM].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[USTAR_CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
