//! ZIP, cpio, mtree and pseudo files as other programs read them; compression; threads.

use super::{all_options, exported, packed, program};
use kiln_format::inode::FileType;
use kiln_read::{FollowLast, Threads};
use kiln_sink::archive::{ExportOptions, Format, StreamCompression};
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir};
use kiln_tests::temp::TempDir;
use sha2::{Digest, Sha256};
use std::io::Read;

/// All parts of the tree except the large sparse files.
const PARTS: [&str; 10] =
    ["dirs", "duplicates", "files", "links", "meta", "names", "nodes", "sparse/comb", "times", "xattrs"];

/// Returns the exported part of a tree. `tells` returns true if the format can hold a file, and
/// clears what it cannot hold.
fn part_of(snapshot: &Snapshot, mut tells: impl FnMut(&[u8], &mut kiln_tests::snapshot::Record) -> bool) -> Snapshot {
    let mut part = Snapshot::new();
    for (path, record) in snapshot {
        let mut record = record.clone();
        let is_in =
            |part: &&str| path.strip_prefix(part.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        if (path == b"sparse" || PARTS.iter().any(is_in)) && tells(path, &mut record) {
            part.insert(path.clone(), record);
        }
    }
    part
}

/// Keeps names, types, contents, modes, owners and whole seconds.
fn is_in_zip(path: &[u8], record: &mut kiln_tests::snapshot::Record) -> bool {
    // bsdtar reads times before 1970 as times in the far future.
    let secs = if record.mtime.0 < 0 { i64::MAX } else { record.mtime.0 };
    record.mtime = (secs.min(i32::MAX.into()), 0);
    record.xattrs.clear();
    (record.nlink, record.first_name) = (0, path.to_vec());
    matches!(record.file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}

#[test]
fn zip_is_read_by_bsdtar_and_python() {
    let Some(packed) = packed() else { return };
    let (zip, report) = exported(&packed.image, &PARTS, &ExportOptions::new(Format::Zip));
    let scratch = TempDir::new("export").unwrap();
    std::fs::write(scratch.join("zip"), &zip).unwrap();
    let script = "import zipfile; z = zipfile.ZipFile('zip'); assert z.testzip() is None; print(len(z.namelist()))";
    if let Some(count) = program(scratch.path(), "python3", &["-c", script], b"") {
        let members = report.files + report.dirs + report.others;
        assert_eq!(String::from_utf8(count).unwrap().trim(), members.to_string());
    }
    let target = scratch.dir("target");
    if program(&target, "bsdtar", &["-xpf", "../zip", "--numeric-owner"], b"").is_some() {
        let mut actual = part_of(&of_dir(&target).unwrap(), is_in_zip);
        actual.remove(&b""[..]);
        assert_same(&part_of(&packed.snapshot, is_in_zip), &actual, "bsdtar");
    }
}

#[test]
fn cpio_is_read_by_gnu_cpio() {
    let Some(packed) = packed() else { return };
    let (cpio, _) = exported(&packed.image, &PARTS, &ExportOptions::new(Format::Cpio));
    let scratch = TempDir::new("export").unwrap();
    if program(scratch.path(), "cpio", &["-idm", "--quiet"], &cpio).is_none() {
        return;
    }
    let tells = |path: &[u8], record: &mut kiln_tests::snapshot::Record| {
        record.xattrs.clear();
        record.mtime = (record.mtime.0.clamp(0, u32::MAX.into()), 0);
        match record.file_type {
            // cpio creates files in directories after setting the directories' times.
            FileType::Directory => record.mtime = (0, 0),
            FileType::Symlink => {
                (record.mtime, record.nlink, record.first_name) = ((0, 0), 1, path.to_vec());
            }
            _ => {}
        }
        true
    };
    let (expected, actual) = (part_of(&packed.snapshot, tells), part_of(&of_dir(scratch.path()).unwrap(), tells));
    assert_same(&expected, &actual, "GNU cpio");
}

#[test]
fn mtree_is_read_by_bsdtar_and_its_digests_are_right() {
    let Some(packed) = packed() else { return };
    let (mtree, _) = exported(&packed.image, &PARTS, &ExportOptions::new(Format::Mtree));
    let (tar, _) = exported(&packed.image, &PARTS, &ExportOptions::new(Format::Tar));
    let scratch = TempDir::new("export").unwrap();
    let list = |archive: &[u8]| {
        let listing = program(scratch.path(), "bsdtar", &["-tf", "-"], archive)?;
        let lines = String::from_utf8(listing).unwrap();
        let mut names: Vec<String> = lines.lines().map(|line| line.trim_end_matches('/').to_owned()).collect();
        names.sort();
        Some(names)
    };
    // bsdtar does not support sockets.
    let lines = mtree.split_inclusive(|&byte| byte == b'\n');
    let known: Vec<u8> =
        lines.filter(|line| !line.windows(13).any(|part| part == b" type=socket ")).flatten().copied().collect();
    assert!(known.len() < mtree.len());
    if let (Some(of_mtree), Some(of_tar)) = (list(&known), list(&tar)) {
        assert_eq!(of_mtree, of_tar);
    }
    let text = String::from_utf8(mtree).unwrap();
    let mut digests = 0;
    for line in text.lines().filter(|line| !line.contains('\\') && line.contains("sha256digest=")) {
        let path = line.split(' ').next().unwrap();
        let file = packed.image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
        let mut bytes = vec![0; file.size() as usize];
        packed.image.read_at(&file, &mut bytes, 0).unwrap();
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(line.ends_with(&format!(" size={} sha256digest={digest}", bytes.len())), "{line}");
        digests += 1;
    }
    assert!(digests > 50);
}

#[test]
fn pseudo_definitions_are_read_by_mksquashfs() {
    let Some(packed) = packed() else { return };
    let (pseudo, _) = exported(&packed.image, &PARTS, &ExportOptions::new(Format::SquashfsPseudo));
    let scratch = TempDir::new("export").unwrap();
    let args = ["-", "image", "-pf", "-", "-quiet", "-no-progress", "-pd", "D 0 755 0 0"];
    if !kiln_tests::has_mksquashfs()
        || program(scratch.path(), "mksquashfs", &args, &pseudo).is_none()
        || program(scratch.path(), "unsquashfs", &["-q", "-n", "-d", "target", "image"], b"").is_none()
    {
        return;
    }
    let tells = |path: &[u8], record: &mut kiln_tests::snapshot::Record| {
        record.mtime = (record.mtime.0.clamp(0, u32::MAX.into()), 0);
        let can_be_said = !path.contains(&b'\n') && !record.target.contains(&b'\n') && !record.target.starts_with(b" ");
        record.xattrs.retain(|name, value| {
            !name.starts_with(b"system.") && !name.contains(&b'=') && (1..11_000).contains(&value.len())
        });
        can_be_said
    };
    let actual = part_of(&of_dir(&scratch.join("target")).unwrap(), tells);
    assert_same(&part_of(&packed.snapshot, tells), &actual, "mksquashfs");
}

#[test]
fn streams_are_compressed_whole() {
    let Some(packed) = packed() else { return };
    let (plain, _) = exported(&packed.image, &["/"], &ExportOptions::new(Format::Tar));
    for options in all_options() {
        let Some(compression) = options.compression else { continue };
        let (stream, _) = exported(&packed.image, &["/"], &options);
        assert!(stream.len() < plain.len() / 2, "{compression:?}: {} of {}", stream.len(), plain.len());
        let mut decoded = Vec::new();
        let read = match compression {
            StreamCompression::Gzip => flate2::read::MultiGzDecoder::new(&stream[..]).read_to_end(&mut decoded),
            StreamCompression::Zstd => zstd::Decoder::new(&stream[..]).unwrap().read_to_end(&mut decoded),
            StreamCompression::Xz => liblzma::read::XzDecoder::new_multi_decoder(&stream[..]).read_to_end(&mut decoded),
            StreamCompression::Bzip2 => bzip2::read::MultiBzDecoder::new(&stream[..]).read_to_end(&mut decoded),
            // The decoder reads one frame only.
            StreamCompression::Lz4 => {
                let mut rest = &stream[..];
                while !rest.is_empty() {
                    lz4_flex::frame::FrameDecoder::new(&mut rest).read_to_end(&mut decoded).unwrap();
                }
                Ok(decoded.len())
            }
        };
        read.unwrap();
        assert!(decoded == plain, "{compression:?}");
    }
}

#[test]
fn threads_change_nothing() {
    let Some(packed) = packed() else { return };
    for options in all_options() {
        let with = |threads| {
            let threads = Threads::at_least_one(threads);
            exported(&packed.image, &PARTS, &ExportOptions { threads, ..options }).0
        };
        let one = with(1);
        assert!(one == with(2) && one == with(5), "{options:?}");
    }
}
