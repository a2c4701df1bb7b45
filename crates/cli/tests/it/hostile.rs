//! Sources that are made to exhaust memory, disk space or the stack.
//!
//! The command runs with a limit of address space, so that a source that needs more fails with a message other than
//! the expected one.

use crate::common::{fails, names, stderr, stdout};
use kiln_tests::temp::TempDir;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

/// Address space of the command, in KiB: far less than any source here claims. It includes the mapped program
/// itself.
const MEMORY_KIB: u64 = 1 << 20;
/// Number of members of the large archive.
const MEMBERS: usize = 300_000;
/// Number of names in the deepest path.
const DEPTH: usize = 100_000;
/// Unpacked length of a bomb in bytes.
const BOMB_LEN: usize = 16 << 20;

/// Returns the command within its limit.
fn limited(args: &[&str], stdin: Stdio) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MEMORY_KIB} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kiln")]).args(args).stdin(stdin);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("COLUMNS", "100");
    command
}

fn run_limited(args: &[&str]) -> Output {
    limited(args, Stdio::null()).output().unwrap()
}

/// Packs the tar archive `source` within the limit; it must fail and print all of `words`.
fn refused(dir: &TempDir, source: &Path, words: &[&str]) {
    let image = dir.join("refused.erofs");
    let names = [source.to_str().unwrap(), image.to_str().unwrap()];
    let output = run_limited(&["pack", "--threads", "2", "--from", "tar", names[0], names[1]]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
    assert!(!image.exists());
}

/// Returns a header of a ustar archive. `size` is the raw field.
fn header(name: &str, flag: u8, size: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..124].copy_from_slice(b"0000755\x000000000\x000000000\0");
    header[124..124 + size.len()].copy_from_slice(size);
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].fill(b' ');
    header[156] = flag;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Returns a GNU tar path that is longer than a header, then the member that has it.
fn long_member(path: &[u8], flag: u8) -> Vec<u8> {
    let mut bytes = header("././@LongLink", b'L', format!("{:011o}\0", path.len()).as_bytes());
    bytes.extend_from_slice(path);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes.extend(header("short", flag, b"00000000000\0"));
    bytes
}

fn write(dir: &TempDir, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// For each compression, an archive within `--spool-max` is packed, and beyond it the build ends.
#[test]
fn what_unpacks_to_too_much_ends_at_the_limit() {
    let dir = TempDir::in_memory("bombs").unwrap();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![b'a'; BOMB_LEN]).unwrap();
    let (tree, image) = (tree.to_str().unwrap(), dir.join("image").to_str().unwrap().to_owned());
    stdout(&["pack", "--quiet", tree, &image]);
    for ending in ["tar.gz", "tar.zst", "tar.xz", "tar.bz2", "tar.lz4", "zip"] {
        let archive = dir.join(&format!("archive.{ending}"));
        let path = archive.to_str().unwrap();
        stdout(&["export", "--quiet", &image, path]);
        assert!(fs::metadata(&archive).unwrap().len() < BOMB_LEN as u64 / 100, "{ending}: no bomb");
        let packed = dir.join(&format!("{ending}.erofs"));
        let packed = packed.to_str().unwrap();
        let words = "takes more than 1048576 bytes; if you trust the source, allow more with --spool-max";
        fails(&["pack", "--spool-max", "1M", path, packed], 1, words);
        fails(&["convert", "--spool-max", "1M", path, packed], 1, words);
        stdout(&["pack", "--quiet", "--spool-max", "17M", path, packed]);
    }
    assert!(names(dir.path()).iter().all(|name| !name.contains("kiln")), "a spool has a name");
}

/// An endless stream of zstd frames, each of which claims 128 KiB of equal bytes in 4 bytes.
#[test]
fn an_endless_stream_ends_at_the_limit() {
    const REPEATED: [u8; 4] = [0x02, 0x00, 0x10, b'a'];
    let dir = TempDir::in_memory("endless").unwrap();
    let image = dir.join("image.erofs");
    let args = ["pack", "--spool-max", "32M", "-", image.to_str().unwrap()];
    let mut child = limited(&args, Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = thread::spawn(move || {
        // A window of 1 MiB, no length; the first block is stored uncompressed: a header that claims 8 GiB.
        let mut front = b"\x28\xB5\x2F\xFD\x00\x50".to_vec();
        front.extend_from_slice(&(512_u32 << 3).to_le_bytes()[..3]);
        front.extend(header("endless", b'0', b"77777777777\0"));
        let piece = REPEATED.repeat(1024);
        let mut sent = stdin.write_all(&front);
        while sent.is_ok() {
            sent = stdin.write_all(&piece);
        }
        sent.unwrap_err().kind()
    });
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("takes more than 33554432 bytes"), "{message}");
    assert!(message.contains("at byte 512"), "{message}");
    assert_eq!(feeder.join().unwrap(), std::io::ErrorKind::BrokenPipe);
    assert!(!image.exists());
}

#[test]
fn sizes_that_lie_take_no_memory() {
    let dir = TempDir::in_memory("lies").unwrap();
    // 2^62 in base 256, a length that a file may have, and 2^63, which is invalid.
    let cases = [
        (0x40, ["at byte 512: file: ", "into a file of 4611686018427387904 bytes"]),
        (0x80, ["at byte 0: file: size = ", "not a number"]),
    ];
    for (first, words) in cases {
        let size = [0x80, 0, 0, 0, first, 0, 0, 0, 0, 0, 0, 0];
        let archive = write(&dir, "lies.tar", &[header("file", b'0', &size), vec![0; 1024]].concat());
        refused(&dir, &archive, &words);
    }
    // Extended headers are read into memory, and have limits of their own.
    let size = [0x80, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0];
    for flag in [b'x', b'g', b'L', b'K'] {
        let archive = write(&dir, "lies.tar", &[header("file", flag, &size), vec![0; 1024]].concat());
        refused(&dir, &archive, &["at byte 0", "size = 4611686018427387904 of a header of type"]);
    }
}

#[test]
fn many_empty_members_take_memory_by_the_member() {
    let dir = TempDir::in_memory("many").unwrap();
    let archive = dir.join("many.tar");
    let mut file = std::io::BufWriter::new(File::create(&archive).unwrap());
    for number in 0..MEMBERS {
        file.write_all(&header(&format!("d{}/f{number}", number / 1000), b'0', b"00000000000\0")).unwrap();
    }
    file.write_all(&[0; 1024]).unwrap();
    drop(file);
    let image = dir.join("many.erofs");
    let args = ["pack", "--quiet", "--threads", "2", archive.to_str().unwrap(), image.to_str().unwrap()];
    let output = run_limited(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let listed = String::from_utf8(stdout(&["info", "--json", image.to_str().unwrap()])).unwrap();
    let inodes = MEMBERS + MEMBERS / 1000 + 1;
    assert!(listed.contains(&format!("{inodes}")), "{listed}");
}

/// Members of 100 bytes are held by their length, not by blocks, however many of them are decided about at once.
#[test]
fn many_small_members_take_memory_by_the_byte() {
    const MEMBERS: usize = 100_000;
    const DATA_KIB: u64 = 256 << 10;
    let dir = TempDir::in_memory("small").unwrap();
    let archive = dir.join("small.tar");
    let mut file = std::io::BufWriter::new(File::create(&archive).unwrap());
    for number in 0..MEMBERS {
        file.write_all(&header(&format!("d{}/f{number}", number / 1000), b'0', b"00000000144\0")).unwrap();
        let mut text = format!("{number:050}").repeat(2).into_bytes();
        text.resize(512, 0);
        file.write_all(&text).unwrap();
    }
    file.write_all(&[0; 1024]).unwrap();
    drop(file);
    let image = dir.join("small.erofs");
    let script = format!("ulimit -d {DATA_KIB} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kiln"), "pack", "--quiet", "--threads", "2", "--memory", "64M"]);
    let output = command.args(["-", image.to_str().unwrap()]).stdin(File::open(&archive).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// A path of a hundred thousand names takes memory per name, and no stack.
#[test]
fn deep_paths_are_no_end_of_the_stack() {
    let dir = TempDir::in_memory("deep").unwrap();
    let path = b"d/".repeat(DEPTH);
    let archive = write(&dir, "deep.tar", &[long_member(&path, b'5'), vec![0; 1024]].concat());
    let image = dir.join("deep.erofs");
    let args = ["pack", "--quiet", "--threads", "2", archive.to_str().unwrap(), image.to_str().unwrap()];
    let output = run_limited(&args);
    // Readers of images follow paths of up to 64 KiB, so no image has longer ones.
    assert_eq!(output.status.code(), Some(1), "{:?}: {}", output.status, stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("d/d/d/: a path of 65538 bytes begins so") && message.len() < 1000, "{message}");
    assert!(!image.exists());
}

/// Returns a PAX record with its length.
fn record(text: &str) -> Vec<u8> {
    let len = (text.len()..).find(|len| format!("{len} {text}\n").len() == *len).unwrap();
    format!("{len} {text}\n").into_bytes()
}

/// Returns a member with these records.
fn extended(name: &str, flag: u8, records: &[&str]) -> Vec<u8> {
    let payload: Vec<u8> = records.iter().flat_map(|text| record(text)).collect();
    let mut bytes = header("pax", b'x', format!("{:011o}\0", payload.len()).as_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes.extend(header(name, flag, b"00000000000\0"));
    bytes
}

/// Each file names users of its own in its ACL, and the list of users claims a TiB.
#[test]
fn names_in_acls_take_memory_by_the_name() {
    const FILES: usize = 20_000;
    let dir = TempDir::in_memory("accounts").unwrap();
    let size =
        ["GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=1099511627776", "GNU.sparse.name=etc/passwd"];
    let mut bytes = extended("x", b'0', &size);
    let at = bytes.len() - 512;
    bytes.truncate(at);
    bytes.extend(header("x", b'0', b"00000001000\0"));
    bytes.extend(b"0\n");
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    for number in 0..FILES {
        let acl = format!("SCHILY.acl.access=user::rw-,user:u{number}:r--,group::r--,mask::r--,other::---");
        bytes.extend(extended(&format!("d/f{number}"), b'0', &[&acl, &format!("SCHILY.xattr.x{number}.y=1")]));
    }
    bytes.extend([0; 1024]);
    let archive = write(&dir, "accounts.tar", &bytes);
    let image = dir.join("accounts.erofs");
    let args = ["pack", "--quiet", "--threads", "2", archive.to_str().unwrap(), image.to_str().unwrap()];
    let output = run_limited(&args);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{:?}: {message}", output.status);
    assert!(message.lines().count() == 1 && message.len() < 1000, "{} bytes", message.len());
    assert!(message.contains(&format!("and {} other names", 2 * FILES - 8)), "{message}");
}

/// Compressed segments of an initramfs, each of them empty.
#[test]
fn many_segments_take_neither_memory_nor_stack() {
    const EMPTY_GZIP: &[u8] = b"\x1F\x8B\x08\0\0\0\0\0\0\xFF\x03\0\0\0\0\0\0\0\0\0";
    const EMPTY_ZSTD: &[u8] = b"\x28\xB5\x2F\xFD\0\x50\x01\0\0\0";
    let dir = TempDir::in_memory("segments").unwrap();
    let end = format!("070701{}{:08X}{:08X}TRAILER!!!\0\0\0\0", "0".repeat(88), 11, 0);
    let bytes = [&[EMPTY_GZIP, EMPTY_ZSTD].concat().repeat(20_000)[..], end.as_bytes()].concat();
    let (archive, image) = (write(&dir, "initrd", &bytes), dir.join("segments.erofs"));
    let args =
        ["pack", "--quiet", "--threads", "2", "--from", "cpio", archive.to_str().unwrap(), image.to_str().unwrap()];
    let output = run_limited(&args);
    assert_eq!(output.status.code(), Some(0), "{:?}: {}", output.status, stderr(&output));
}

/// Images whose counts claim billions.
#[test]
fn counts_that_lie_take_no_memory() {
    let dir = TempDir::in_memory("counts").unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    // Image, record of the superblock, name of the field, its offset, its length in bytes.
    let cases = [
        ("squashfs/seed-plain", "inode_count", 4, 4),
        ("squashfs/seed-plain", "frag_count", 16, 4),
        ("squashfs/seed-plain", "id_count", 26, 2),
        ("squashfs/seed-plain", "bytes_used", 40, 8),
        ("squashfs/seed-zstd", "frag_count", 16, 4),
        ("ext4/seed-extents", "s_inodes_count", 1024, 4),
        ("ext4/seed-extents", "s_blocks_count_lo", 1024 + 4, 4),
        ("ext4/seed-extents", "s_blocks_per_group", 1024 + 32, 4),
        ("ext4/seed-extents", "s_inodes_per_group", 1024 + 40, 4),
        ("ext4/seed-extents", "s_blocks_count_hi", 1024 + 0x150, 4),
        ("cramfs/seed-little", "size", 4, 4),
        ("cramfs/seed-little", "blocks", 40, 4),
        ("cramfs/seed-little", "files", 44, 4),
    ];
    for (seed, field, at, len) in cases {
        let mut bytes = fs::read(corpus.join(seed)).unwrap();
        bytes[at..at + len].fill(0xFF);
        bytes[at + len - 1] = 0x7F;
        let image = write(&dir, "image", &bytes);
        let built = dir.join("built.erofs");
        let args = ["pack", "--quiet", "--force", "--threads", "2", image.to_str().unwrap(), built.to_str().unwrap()];
        let output = run_limited(&args);
        let message = stderr(&output);
        // A count that only gives the length of the image, or that is not needed, may be ignored.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{seed}, {field}: {:?}: {message}", output.status);
        assert!(output.status.success() || message.contains("image: "), "{seed}, {field}: {message}");
        assert!(!message.contains("memory"), "{seed}, {field}: {message}");
    }
}
