//! `--keep-going` with damaged inputs: readable parts are kept, the rest is reported, and the exit code is 3.
//! Without it nothing is made.

use crate::common::{Scratch, json, kiln, run, skip, stderr, stdout, text};
use kiln_tests::rng::Rng;
use kiln_tests::without;
use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files of text that compresses, in the order of their names.
const FILES: [&str; 4] = ["a", "b", "c", "d"];
const LEN: usize = 300_000;

fn contents(name: &str) -> Vec<u8> {
    text(name.as_bytes()[0].into(), LEN)
}

/// Makes the tree from which sources are made.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("tree");
    fs::create_dir(&root).unwrap();
    FILES.iter().for_each(|name| fs::write(format!("{root}/{name}"), contents(name)).unwrap());
    root
}

/// Converts the tree to another kind of source by kiln.
fn source(scratch: &Scratch, name: &str) -> Vec<u8> {
    let path = scratch.path(name);
    stdout(&["convert", &tree(scratch), &path]);
    fs::read(path).unwrap()
}

/// Returns the place of `part` in `bytes`, which contain it once.
fn find(bytes: &[u8], part: &[u8]) -> usize {
    let places: Vec<usize> = (0..=bytes.len() - part.len()).filter(|&at| bytes[at..].starts_with(part)).collect();
    let [at] = places[..] else { panic!("{} lies at {places:?}", part.escape_ascii()) };
    at
}

/// Changes `len` bytes at `at`.
fn damage(bytes: &mut [u8], at: usize, len: usize) {
    bytes[at..at + len].iter_mut().for_each(|byte| *byte ^= 0xff);
}

/// Checks the files that `kiln pack --keep-going` skips in the source `bytes`, with the words that each message must
/// contain. All other files of the tree are in the image, and the skipped ones are not.
fn check(scratch: &Scratch, bytes: &[u8], from: &str, expected: &[(&str, &str)]) {
    let (source, out) = (scratch.path("damaged"), scratch.path("out"));
    fs::write(&source, bytes).unwrap();
    let before = scratch.names();
    let plain = run(&["pack", "--quiet", "--from", from, &source, &out]);
    assert_eq!(plain.status.code(), Some(1), "{from}: {}", stderr(&plain));
    assert!(stderr(&plain).contains(expected[0].1), "{from}: {}", stderr(&plain));
    assert_eq!(scratch.names(), before, "{from}: nothing is left");

    let kept = run(&["pack", "--quiet", "--keep-going", "--json", "--from", from, &source, &out]);
    assert_eq!(kept.status.code(), Some(3), "{from}: {}", stderr(&kept));
    let skipped = json(&kept.stdout)["skipped"].as_array().unwrap().clone();
    assert_eq!(skipped.len(), expected.len(), "{from}: {skipped:?}");
    for (skipped, (name, words)) in skipped.iter().zip(expected) {
        let error = skipped["error"].as_str().unwrap();
        assert!(error.contains(words), "{from}: {words:?} is not in {error:?}");
        let path = if name.is_empty() { &source } else { *name };
        assert_eq!(skipped["path"], path, "{from}: {skipped}");
        assert!(stderr(&kept).contains("skipped: "), "{from}: {}", stderr(&kept));
    }
    stdout(&["check", &out]);
    fs::remove_file(out).unwrap();
}

/// Returns the files of the tree that `kiln pack --keep-going` keeps of a source, each unchanged.
fn kept(scratch: &Scratch, bytes: &[u8]) -> Vec<&'static str> {
    let (source, out) = (scratch.path("damaged"), scratch.path("kept"));
    fs::write(&source, bytes).unwrap();
    assert_eq!(run(&["pack", "--quiet", "--force", "--keep-going", &source, &out]).status.code(), Some(3));
    FILES.into_iter().filter(|name| run(&["cat", &out, name]).stdout == contents(name)).collect()
}

#[test]
fn of_a_tar_archive_members_around_the_damage_are_kept() {
    let scratch = Scratch::new();
    let tar = source(&scratch, "whole.tar");
    let header = find(&tar, b"./b\0");
    // The end is missing.
    let cut = &tar[..header + 512 + 1000];
    check(&scratch, cut, "tar", &[("b", &format!("at byte {}: ", header + 512))]);
    check(&scratch, cut, "tar", &[("b", "the archive ends 1000 bytes into a file of 300000 bytes")]);
    assert_eq!(kept(&scratch, cut), ["a"]);
    // A header is damaged: the archive goes on with the next one.
    let mut changed = tar.clone();
    damage(&mut changed, header + 148, 3);
    check(&scratch, &changed, "tar", &[("", &format!("at byte {header}: chksum = "))]);
    assert_eq!(kept(&scratch, &changed), ["a", "c", "d"]);
    // An invalid size: the data up to the next header is lost, too.
    let mut changed = tar.clone();
    changed[header + 124..header + 136].copy_from_slice(b"99999999x99\0");
    let sum: u32 = changed[header..header + 512].iter().map(|&byte| u32::from(byte)).sum();
    let old: u32 = changed[header + 148..header + 156].iter().map(|&byte| u32::from(byte)).sum();
    changed[header + 148..header + 156].copy_from_slice(format!("{:06o}\0 ", sum - old + 8 * 32).as_bytes());
    check(&scratch, &changed, "tar", &[("b", "size = "), ("", "chksum = ")]);
    assert_eq!(kept(&scratch, &changed), ["a", "c", "d"]);
    // A file without any member is not an archive.
    let junk = scratch.path("junk");
    fs::write(&junk, text(1, 10_000)).unwrap();
    for from in ["tar", "cpio"] {
        let output = run(&["pack", "--keep-going", "--from", from, &junk, &scratch.path("none")]);
        assert_eq!(output.status.code(), Some(1), "{from}: {}", stderr(&output));
    }
    assert!(!Path::new(&scratch.path("none")).exists());
}

#[test]
fn of_a_compressed_archive_what_can_be_decompressed_is_kept() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let [gz, zst] = ["whole.tar.gz", "whole.tar.zst"].map(|name| {
        let path = scratch.path(name);
        stdout(&["convert", &root, &path]);
        fs::read(path).unwrap()
    });
    for packed in [&gz, &zst] {
        let cut = &packed[..packed.len() / 2];
        assert!(kept(&scratch, cut).starts_with(&["a"]));
        let (out, path) = (scratch.path("out"), scratch.path("damaged"));
        let output = run(&["pack", &path, &out]);
        assert_eq!((output.status.code(), Path::new(&out).exists()), (Some(1), false));
        assert!(stderr(&output).contains("the compressed data are truncated"), "{}", stderr(&output));
    }
    // The same from a pipe, which cannot be read twice.
    let mut child = kiln();
    let mut child = child.args(["pack", "--keep-going", "--quiet", "-", &scratch.path("piped")]);
    child = child.stdin(Stdio::from(fs::File::open(scratch.path("damaged")).unwrap()));
    assert_eq!(child.status().unwrap().code(), Some(3));
    assert_eq!(stdout(&["cat", &scratch.path("piped"), "a"]), contents("a"));
}

#[test]
fn of_a_cpio_archive_members_around_the_damage_are_kept() {
    let scratch = Scratch::new();
    let cpio = source(&scratch, "whole.cpio");
    // The last field of the header, and the name.
    let header = find(&cpio, b"00000000b\0") + 8 - 110;
    assert!(cpio[header..].starts_with(b"070701"));
    let cut = &cpio[..header + 5000];
    check(
        &scratch,
        cut,
        "cpio",
        &[("b", "filesize = 300000: beyond the end"), ("TRAILER!!!", "ends without this member")],
    );
    assert_eq!(kept(&scratch, cut), ["a"]);
    let mut changed = cpio.clone();
    damage(&mut changed, header + 54, 3);
    check(&scratch, &changed, "cpio", &[("", &format!("at byte {header}: filesize = "))]);
    assert_eq!(kept(&scratch, &changed), ["a", "c", "d"]);
    let mut changed = cpio.clone();
    damage(&mut changed, header, 6);
    check(&scratch, &changed, "cpio", &[("", &format!("at byte {header}: magic = "))]);
    assert_eq!(kept(&scratch, &changed), ["a", "c", "d"]);
}

#[test]
fn of_a_zip_archive_members_that_do_not_decompress_are_left_out() {
    let scratch = Scratch::new();
    let zip = source(&scratch, "whole.zip");
    // The first member's data, and one wrong checksum in the directory.
    let mut changed = zip.clone();
    damage(&mut changed, 2000, 40);
    let record = (0..zip.len() - 4).filter(|&at| zip[at..].starts_with(b"PK\x01\x02")).nth(2).unwrap();
    changed[record + 16] ^= 1;
    let kept = kept(&scratch, &changed);
    assert_eq!(kept.len(), 2, "{kept:?}");
    let output = run(&["pack", &scratch.path("damaged"), &scratch.path("out")]);
    assert_eq!((output.status.code(), Path::new(&scratch.path("out")).exists()), (Some(1), false));
    assert!(stderr(&output).contains(" of the archive: "), "{}", stderr(&output));
}

#[test]
fn of_images_files_that_cannot_be_read_are_left_out() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    // EROFS: a pcluster, and an inode.
    let image = scratch.path("whole.erofs");
    stdout(&["pack", "--quiet", "-z", "lz4", "-C", "64k", "--fragments", "off", &root, &image]);
    let bytes = fs::read(&image).unwrap();
    let extent = extents(&image, "b")[1]["address"].as_u64().unwrap() as usize;
    let mut changed = bytes.clone();
    damage(&mut changed, extent + 100, 200);
    check(&scratch, &changed, "erofs", &[("b", "pcluster of ")]);
    assert_eq!(kept(&scratch, &changed), ["a", "c", "d"]);
    let (mut changed, inode) = (bytes.clone(), inode_off(&image, "c"));
    // Its layout and version.
    changed[inode..inode + 2].fill(0xff);
    assert_eq!(kept(&scratch, &changed), ["a", "b", "d"]);
    // SquashFS: the first block is that of the first file.
    let (squashfs, cramfs) = (scratch.path("whole.squashfs"), scratch.path("whole.cramfs"));
    let made = Command::new("mksquashfs").args([&root, &squashfs, "-quiet", "-no-progress", "-no-fragments"]).output();
    match made {
        Ok(output) if output.status.success() => {
            let mut bytes = fs::read(&squashfs).unwrap();
            damage(&mut bytes, 96 + 500, 100);
            check(&scratch, &bytes, "squashfs", &[("a", "at byte 96: ")]);
            assert_eq!(kept(&scratch, &bytes), ["b", "c", "d"]);
        }
        _ => without("mksquashfs"),
    }
    // cramfs: the CRC of the whole image is reported, and the file with the damaged block.
    let made = Command::new("mkfs.cramfs").args([&root, &cramfs]).output();
    match made {
        Ok(output) if output.status.success() => {
            let mut bytes = fs::read(&cramfs).unwrap();
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            damage(&mut bytes, end - 300, 100);
            check(&scratch, &bytes, "cramfs", &[("", "crc = "), ("d", "is not a zlib stream")]);
            assert_eq!(kept(&scratch, &bytes), ["a", "b", "c"]);
        }
        _ => without("mkfs.cramfs"),
    }
}

#[test]
fn of_a_container_damaged_layers_are_kept_as_far_as_they_can_be_read() {
    let scratch = Scratch::new();
    let layout = scratch.path("layout");
    stdout(&["oci", "pack", "--quiet", "--preset", "plain", &tree(&scratch), &layout]);
    let blobs = format!("{layout}/blobs/sha256");
    let layer = crate::common::names(&blobs).into_iter().map(|name| format!("{blobs}/{name}"));
    let layer = layer.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&layer).unwrap();
    let at = find(&bytes, &contents("b")[5000..5100]);
    damage(&mut bytes, at, 1);
    fs::write(&layer, bytes).unwrap();
    let out = scratch.path("out");
    let pack = |options: &[&str]| run(&[&["pack", "--quiet", "--from", "oci"], options, &[&layout, &out]].concat());
    let plain = pack(&[]);
    assert_eq!((plain.status.code(), Path::new(&out).exists()), (Some(1), false));
    let kept = pack(&["--keep-going"]);
    assert_eq!(kept.status.code(), Some(3), "{}", stderr(&kept));
    assert!([plain, kept].iter().all(|output| stderr(output).contains("digest = sha256:")));
    assert_eq!(stdout(&["cat", &out, "c"]), contents("c"));
}

/// Returns the place of a file's inode in an image.
fn inode_off(image: &str, name: &str) -> usize {
    let info = json(&stdout(&["info", "--json", image]));
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let nid = number(&json(&stdout(&["stat", "--json", image, name]))["nid"]);
    number(&info["meta_blkaddr"]) * number(&info["block_size"]) + nid * 32
}

/// Returns the extents of a file of an image.
fn extents(image: &str, name: &str) -> Vec<Value> {
    let stat = json(&stdout(&["stat", "--extents", "--json", image, name]));
    stat["extents"].as_array().unwrap().clone()
}

/// Returns the members of a tar archive.
fn untar(scratch: &Scratch, archive: &str) -> Option<String> {
    let dir = scratch.path("untarred");
    fs::create_dir(&dir).unwrap();
    let done = Command::new("tar").args(["-xf", archive, "-C", &dir]).output().ok()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(dir)
}

#[test]
fn damaged_images_are_exported_with_zeros() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::hard_link(format!("{root}/b"), format!("{root}/link")).unwrap();
    stdout(&["pack", "--quiet", "-z", "lz4", "-C", "16k", "--fragments", "off", &root, &image]);
    let (extents, inode) = (extents(&image, "b"), inode_off(&image, "c"));
    let number = |extent: &Value, field: &str| extent[field].as_u64().unwrap() as usize;
    let mut bytes = fs::read(&image).unwrap();
    damage(&mut bytes, number(&extents[2], "address") + 100, 500);
    bytes[inode..inode + 2].fill(0xff);
    fs::write(&image, bytes).unwrap();

    for format in ["tar", "tar.zst", "cpio", "zip", "mtree", "pseudo"] {
        let out = scratch.path(&format!("out.{format}"));
        let plain = run(&["export", "--quiet", &image, &out]);
        assert_eq!((plain.status.code(), Path::new(&out).exists()), (Some(1), false), "{format}: {}", stderr(&plain));
        let output = run(&["export", "--keep-going", "--json", &image, &out]);
        assert_eq!(output.status.code(), Some(3), "{format}: {}", stderr(&output));
        let report = json(&output.stdout);
        assert_eq!(crate::json::undocumented(&report), Vec::<String>::new());
        let paths = |list: &Value| {
            let paths = list.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned());
            paths.collect::<Vec<_>>()
        };
        // If links become copies, each has the zeros; in cpio, the last name has the data.
        let damaged = match format {
            "zip" | "mtree" => vec!["b", "link"],
            "cpio" => vec!["link"],
            _ => vec!["b"],
        };
        assert_eq!(
            (paths(&report["damaged"]), paths(&report["skipped"])),
            (damaged.iter().map(ToString::to_string).collect(), vec!["c".to_owned()]),
            "{format}"
        );
        assert!(stderr(&output).contains("zeros stand for what is damaged: "), "{}", stderr(&output));
    }
    let Some(dir) = untar(&scratch, &scratch.path("out.tar")) else { return without("tar") };
    let mut expected = contents("b");
    let hole = number(&extents[2], "offset")..number(&extents[3], "offset");
    assert!(hole.len() > 1000);
    expected[hole.clone()].fill(0);
    for (name, expected) in
        [("a", contents("a")), ("b", expected.clone()), ("link", expected.clone()), ("d", contents("d"))]
    {
        let mut found = Vec::new();
        fs::File::open(format!("{dir}/{name}")).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == expected, "{name}");
    }
    assert!(!Path::new(&format!("{dir}/c")).exists());
    // A directory gets whole files only, unless zeros are requested.
    let whole = scratch.path("whole");
    let output = run(&["export", "--to", "dir", "--keep-going", &image, &whole]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(crate::common::names(&whole), ["a", "d"]);
    let byte = format!("where byte {} of the file is", hole.start);
    assert!(stderr(&output).contains(&byte), "{byte}: {}", stderr(&output));
    let zeroed = scratch.path("zeroed");
    assert_eq!(run(&["extract", "--zeros", &image, &zeroed]).status.code(), Some(2), "with --keep-going only");
    let output = run(&["extract", "--keep-going", "--zeros", "--json", &image, &zeroed]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(crate::common::names(&zeroed), ["a", "b", "d", "link"]);
    assert!(
        fs::read(format!("{zeroed}/b")).unwrap() == expected
            && fs::read(format!("{zeroed}/a")).unwrap() == contents("a")
    );
    let report = json(&output.stdout);
    assert_eq!(crate::json::undocumented(&report), Vec::<String>::new());
    let lost = report["lost"].as_array().unwrap();
    assert_eq!((lost.len(), &lost[0]["path"]), (1, &Value::from("b")), "{report}");
    assert_eq!(lost[0]["ranges"], serde_json::json!([[hole.start, hole.end]]));
    let words = format!("bytes {} to {}", hole.start, hole.end - 1);
    assert!(stderr(&output).contains(&words), "{words}: {}", stderr(&output));
}

/// With digests, a file whose damaged parts do not decode is listed by ranges. A file that decodes to other contents
/// is listed as a whole: nothing shows which of its bytes are wrong.
#[test]
fn zeros_stand_beside_digests() {
    let scratch = Scratch::new();
    let (root, image, out) = (tree(&scratch), scratch.path("image"), scratch.path("out"));
    // Longer than the part that one worker extracts at once, and uncompressed.
    let mut long = vec![0; 18 << 20];
    Rng::new(1).fill(&mut long);
    fs::write(format!("{root}/long"), &long).unwrap();
    let options = ["-z", "lz4", "-C", "16k", "--fragments", "off", "--content-digests", "--dedupe", "off"];
    stdout(&[&["pack", "--quiet"], &options[..], &[&root, &image]].concat());
    let number = |extent: &Value, field: &str| extent[field].as_u64().unwrap() as usize;
    let (broken, stored) = (extents(&image, "b"), &extents(&image, "long")[0]);
    let hole = number(&broken[2], "offset")..number(&broken[3], "offset");
    let mut bytes = fs::read(&image).unwrap();
    damage(&mut bytes, number(&broken[2], "address") + 100, 500);
    bytes[number(stored, "address") + 50] ^= 1;
    fs::write(&image, bytes).unwrap();

    let output = run(&["extract", "--keep-going", "--json", &image, &out]);
    assert_eq!((output.status.code(), crate::common::names(&out)), (Some(3), vec!["a".into(), "c".into(), "d".into()]));
    let output = run(&["extract", "--keep-going", "--zeros", "--into-existing", "--json", &image, &out]);
    assert_eq!((output.status.code(), crate::common::names(&out).len()), (Some(3), 5), "{}", stderr(&output));
    let lost: Vec<_> = json(&output.stdout)["lost"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| (lost["path"].as_str().unwrap().to_owned(), lost["ranges"].clone()))
        .collect();
    let ranges = [serde_json::json!([[hole.start, hole.end]]), serde_json::json!([[0, long.len()]])];
    assert_eq!(lost, ["b".to_owned(), "long".to_owned()].into_iter().zip(ranges).collect::<Vec<_>>());
    let mut expected = contents("b");
    expected[hole].fill(0);
    assert!(fs::read(format!("{out}/b")).unwrap() == expected);
    let found = fs::read(format!("{out}/long")).unwrap();
    assert_eq!(found.iter().zip(&long).filter(|(found, expected)| found != expected).count(), 1);
}

/// A file whose attributes cannot be read is kept, without them.
#[test]
fn files_stay_where_their_attributes_are_damaged() {
    let scratch = Scratch::new();
    let (root, image, disk) = (tree(&scratch), scratch.path("image"), scratch.path("disk"));
    // Too long for an inode of ext4, so it has a block of its own.
    let value = text(7, 1500);
    if setxattr(format!("{root}/b"), "user.note", &value, XattrFlags::empty()).is_err() {
        return skip("no attributes in the temporary directory");
    }
    stdout(&["pack", "--quiet", &root, &image]);
    let mut bytes = fs::read(&image).unwrap();
    // The entry before the value: length and number of the name, length of the value.
    let at = find(&bytes, &value) - "note".len() - 4;
    assert_eq!(bytes[at..at + 2], [4, 1]);
    bytes[at + 2..at + 4].fill(0xff);
    fs::write(&image, bytes).unwrap();
    let mut sources = vec![&image];

    let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-b", "4096", "-d", &root, &disk, "16M"]).output();
    match made {
        Ok(output) => {
            assert!(output.status.success(), "{}", stderr(&output));
            let mut bytes = fs::read(&disk).unwrap();
            let block = find(&bytes, &value) / 4096 * 4096;
            assert!(bytes[block..].starts_with(&0xEA02_0000u32.to_le_bytes()));
            bytes[block + 3] ^= 0xff;
            fs::write(&disk, bytes).unwrap();
            sources.push(&disk);
        }
        Err(_) => without("mke2fs"),
    }
    for source in sources {
        let out = scratch.path("out");
        let plain = run(&["pack", "--quiet", source, &out]);
        assert_eq!((plain.status.code(), Path::new(&out).exists()), (Some(1), false), "{}", stderr(&plain));
        let kept = run(&["pack", "--quiet", "--keep-going", "--json", source, &out]);
        assert_eq!(kept.status.code(), Some(3), "{source}: {}", stderr(&kept));
        let skipped = json(&kept.stdout)["skipped"].clone();
        assert_eq!((skipped.as_array().unwrap().len(), &skipped[0]["path"]), (1, &"b".into()), "{skipped}");
        for name in FILES {
            assert!(stdout(&["cat", &out, name]) == contents(name), "{source}: {name}");
        }
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn convert_and_oci_keep_what_they_can() {
    let scratch = Scratch::new();
    let tar = source(&scratch, "whole.tar");
    let header = find(&tar, b"./b\0");
    let cut = scratch.path("cut.tar");
    fs::write(&cut, &tar[..header + 512 + 1000]).unwrap();
    for (idx, command) in [&["convert"][..], &["convert", "--to", "tar"], &["oci", "pack"]].iter().enumerate() {
        let out = scratch.path(&format!("out{idx}"));
        let plain = run(&[*command, &["--quiet", &cut, &out]].concat());
        assert_eq!(plain.status.code(), Some(1), "{command:?}: {}", stderr(&plain));
        let kept = run(&[*command, &["--quiet", "--nice", "1", "--keep-going", "--json", &cut, &out]].concat());
        assert_eq!(kept.status.code(), Some(3), "{command:?}: {}", stderr(&kept));
        let document = json(&kept.stdout);
        let packed = if command[0] == "oci" { &document["layers"][0] } else { &document };
        assert_eq!(packed["skipped"][0]["path"], "b", "{command:?}: {document}");
    }
    assert_eq!(stdout(&["cat", &scratch.path("out0"), "a"]), contents("a"));
}
