//! Images that refer to data elsewhere: indexes of archives, and images merged as devices.

use super::archives::layer;
use super::{Place, UUID};
use crate::common::{run, skip, stderr, stdout, text};
use crate::mount::has_fuse;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Returns the device slots of an image: tag, blocks, first block in the flat data space.
fn slots(image: &str) -> Vec<(String, u32, u32)> {
    let bytes = fs::read(image).unwrap();
    let number =
        |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let (count, table) = (number(1024 + 86, 2), number(1024 + 88, 2) as usize);
    let slot = |idx: usize| {
        let at = (table + idx) * 128;
        let tag = bytes[at..at + 64].split(|byte| *byte == 0).next().unwrap();
        (String::from_utf8(tag.to_vec()).unwrap(), number(at + 64, 4), number(at + 68, 4))
    };
    (0..count as usize).map(slot).collect()
}

/// Returns `--device` for each of these files.
fn device_args<'a>(option: &'a str, devices: &[&'a str]) -> Vec<&'a str> {
    devices.iter().flat_map(|device| [option, device]).collect()
}

impl Place {
    /// Checks that `image` with these devices is sound, and that our reader, FUSE and the kernel find the tree at
    /// `expected` in it.
    fn holds(&self, expected: &str, image: &str, devices: &[&str]) {
        let check = run(&[&["check"], &device_args("--device", devices)[..], &[image]].concat());
        assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
        let same = |args: &[&str]| {
            let diff = run(&[&["diff"], args].concat());
            assert_eq!(diff.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&diff.stdout), stderr(&diff));
        };
        same(&[&device_args("--device-b", devices)[..], &[expected, image]].concat());
        let dir = self.scratch.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        for via in ["kernel", "fuse"] {
            let mounted =
                run(&[&["mount", "--via", via], &device_args("--device", devices)[..], &[image, &dir]].concat());
            match (via, mounted.status.success()) {
                ("fuse", false) if !has_fuse() => continue,
                ("kernel", false) => {
                    skip("the kernel does not mount EROFS for us");
                    continue;
                }
                (_, is_mounted) => assert!(is_mounted, "{}", stderr(&mounted)),
            }
            same(&[expected, &dir]);
            stdout(&["umount", &dir]);
        }
    }

    /// Runs the program, which must succeed.
    fn works(&self, args: &[&str]) {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }

    /// Runs the program, which must fail with these words and make nothing.
    fn fails(&self, args: &[&str], words: &[&str]) {
        let _ = fs::remove_file(&self.image);
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        words.iter().for_each(|word| assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output)));
        assert!(!Path::new(&self.image).exists(), "{args:?}");
    }

    /// Joins files to one.
    fn joined(&self, name: &str, files: &[&str]) -> String {
        let path = self.scratch.path(name);
        fs::write(&path, files.iter().flat_map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()).unwrap();
        path
    }

    /// Adds a file with data between holes, and one of holes only.
    fn add_sparse_files(&self) {
        let sparse = File::create(format!("{}/dir/sparse", self.src)).unwrap();
        sparse.set_len(3 << 20).unwrap();
        for (at, len) in [(8192, 70_000), (1 << 20, 4096), ((3 << 20) - 5000, 5000)] {
            sparse.write_all_at(&text(at, len), at).unwrap();
        }
        File::create(format!("{}/dir/hole", self.src)).unwrap().set_len(200_000).unwrap();
    }
}

/// containerd's command line; it then appends the archive.
#[test]
fn archives_have_indexes() {
    let place = Place::new();
    fs::write(format!("{}/empty", place.src), "").unwrap();
    fs::write(format!("{}/block", place.src), text(5, 512)).unwrap();
    place.age();
    let tar = place.tar("plain.tar", &[], &["."]);
    let gzip = place.tar("packed.tar.gz", &["-z"], &["."]);
    let (image, records) = (&*place.image, fs::metadata(&tar).unwrap().len().div_ceil(512) as u32);
    let args = ["--tar=i", "--aufs", "--quiet", "-b4096", "-U", UUID, image];
    let containerd = place.run_with(&args, tar.as_ref());
    assert_eq!((containerd.status.code(), containerd.stdout.len()), (Some(0), 0), "{}", stderr(&containerd));
    let info = place.json(&["info"]);
    assert_eq!((&info["uuid"], &info["block_size"]), (&UUID.into(), &512.into()));
    let len = fs::metadata(image).unwrap().len();
    assert!(len < 20_000 && len.is_multiple_of(512), "{len}");
    assert_eq!(slots(image), [(String::new(), records, (len / 512) as u32)]);
    place.holds(&place.src, image, &[&tar]);
    place.holds(&place.src, &place.joined("appended", &[image, &tar]), &[]);
    if let Some(original) = place.original(&args, Some(tar.as_ref())) {
        stdout(&["diff", "--device-a", &tar, "--device-b", &tar, &original, image]);
    } else {
        kiln_tests::without("mkfs.erofs 1.9.4");
    }
    let index = fs::read(image).unwrap();
    // By its name, and by the old name of the mode; options about compression have no effect.
    for args in [&["--tar=i", "-U", UUID, image, &tar], &["--tar=0", "-U", UUID, image, &tar]] {
        place.works(args);
        assert!(fs::read(image).unwrap() == index, "{args:?}");
    }
    place.works(&["--tar=i", "-zlz4hc", "-C65536", image, &tar]);
    place.holds(&place.src, image, &[&tar]);
    // Compressed, with a decompressed copy.
    let kept = place.scratch.path("kept");
    place.works(&["--tar=i", &format!("--ungzip={kept}"), image, &gzip]);
    place.holds(&place.src, image, &[&kept]);
    // At a place in another file.
    let disk = place.scratch.path("disk");
    fs::write(&disk, vec![7; 1 << 16]).unwrap();
    place.works(&["--tar=i", "--offset=4096", &disk, &tar]);
    stdout(&["check", "--offset", "4096", "--device", &tar, &disk]);
    // As one disk of a virtual machine.
    let descriptor = place.scratch.path("vmdk");
    place.works(&["--tar=i", &format!("--vmdk-desc={descriptor}"), image, &tar]);
    let text = fs::read_to_string(&descriptor).unwrap();
    assert!(text.contains(&format!("RW {} FLAT \"{image}\" 0\nRW {records} FLAT \"{tar}\" 0\n", len / 512)), "{text}");
    let piped = place.run_with(&["--tar=i", &format!("--vmdk-desc={descriptor}"), image], tar.as_ref());
    assert_eq!(piped.status.code(), Some(1));
    assert!(stderr(&piped).contains("cannot name device 1: no file is known to be it"), "{}", stderr(&piped));
}

#[test]
fn indexes_know_holes() {
    let place = Place::new();
    place.add_sparse_files();
    place.age();
    for format in ["--format=posix", "--format=gnu", "--sparse-version=0.1"] {
        let options = ["--sparse", if format == "--format=gnu" { "--no-xattrs" } else { "--xattrs" }, format];
        let tar = place.tar("sparse.tar", &options, &["."]);
        assert!(fs::metadata(&tar).unwrap().len() < 2 << 20, "tar found no holes");
        place.works(&["--tar=i", "--quiet", &place.image, &tar]);
        assert!(fs::metadata(&place.image).unwrap().len() < 30_000);
        let (image, dir) = (&*place.image, &*place.src);
        if format == "--format=gnu" {
            // Its times have no fractions.
            let appended = place.joined("appended", &[image, &tar]);
            assert!(stdout(&["cat", &appended, "dir/sparse"]) == fs::read(format!("{dir}/dir/sparse")).unwrap());
        } else {
            place.holds(dir, image, &[&tar]);
        }
    }
}

/// Returns a member of an archive with this header, which contains the size, and its contents.
fn member(name: &str, type_flag: u8, size: usize, data: &[u8]) -> Vec<u8> {
    let mut member = vec![0; 512];
    member[..name.len()].copy_from_slice(name.as_bytes());
    member[100..108].copy_from_slice(b"0000644\0");
    for field in [108..116, 116..124] {
        member[field].copy_from_slice(b"0000000\0");
    }
    member[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    member[136..148].copy_from_slice(b"00000000000\0");
    member[148..156].fill(b' ');
    member[156] = type_flag;
    member[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = member.iter().map(|byte| u32::from(*byte)).sum();
    member[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    member.extend_from_slice(data);
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

/// Data that is not in whole records of the archive is copied into the image.
#[test]
fn indexes_have_what_no_record_begins() {
    let place = Place::new();
    let record = |text: &str| format!("{} {text}\n", text.len() + 4);
    let told = ["GNU.sparse.size=9000", "GNU.sparse.map=100,5,1000,7,8000,512"].map(record).concat();
    let (whole, parts) = (text(1, 70_000), text(2, 524));
    let tar = [
        member("whole", b'0', whole.len(), &whole),
        member("told", b'x', told.len(), told.as_bytes()),
        member("odd", b'0', parts.len(), &parts),
        vec![0; 1024],
    ];
    let path = place.scratch.path("odd.tar");
    fs::write(&path, tar.concat()).unwrap();
    place.works(&["--tar=i", "--quiet", &place.image, &path]);
    let dir = place.scratch.path("expected");
    place.works(&["--tar=f", "--quiet", &place.scratch.path("full"), &path]);
    stdout(&["extract", &place.scratch.path("full"), &dir]);
    let mut odd = vec![0; 9000];
    for (at, range) in [(100, 0..5), (1000, 5..12), (8000, 12..524)] {
        odd[at..at + range.len()].copy_from_slice(&parts[range]);
    }
    assert!(fs::read(format!("{dir}/odd")).unwrap() == odd && fs::read(format!("{dir}/whole")).unwrap() == whole);
    place.holds(&dir, &place.image, &[&path]);
    place.holds(&dir, &place.joined("appended", &[&place.image, &path]), &[]);
    let len = fs::metadata(&place.image).unwrap().len();
    assert!((9000..16_000).contains(&len), "{len}");
}

/// Returns the headers of an archive, without data.
fn headers(tar: &[u8]) -> Vec<u8> {
    let (mut headers, mut at) = (Vec::new(), 0);
    while at + 512 <= tar.len() {
        let header = &tar[at..at + 512];
        headers.extend_from_slice(header);
        let size = header[124..135].iter().filter(|byte| byte.is_ascii_digit());
        let len = size.fold(0, |sum, digit| sum * 8 + usize::from(digit - b'0')).next_multiple_of(512);
        // An extended header is copied with its contents.
        if matches!(header[156], b'x' | b'g' | b'L' | b'K') {
            headers.extend_from_slice(&tar[at + 512..at + 512 + len]);
        }
        at += 512 + if matches!(header[156], b'1'..=b'6') { 0 } else { len };
    }
    headers
}

#[test]
fn archives_may_be_headers_only() {
    let place = Place::new();
    place.age();
    let tar = place.tar("plain.tar", &[], &["."]);
    let headerball = place.scratch.path("headerball");
    fs::write(&headerball, headers(&fs::read(&tar).unwrap())).unwrap();
    assert!(fs::metadata(&headerball).unwrap().len() < fs::metadata(&tar).unwrap().len() / 3);
    let args = ["--tar=headerball", "--quiet", "-Enoinline_data", &place.image, &headerball];
    place.works(&args);
    assert!(fs::metadata(&place.image).unwrap().len() <= 8192);
    let info = place.json(&["info"]);
    assert_eq!((&info["block_size"], &info["extra_devices"]), (&4096.into(), &0.into()));
    if let Some(original) = place.original(&args, None) {
        stdout(&["diff", &original, &place.image]);
    } else {
        kiln_tests::without("mkfs.erofs 1.9.4");
    }
    // The tree, with holes as long as the files.
    for entry in ["text", "again"].map(String::from).into_iter().chain((0..20).map(|idx| format!("dir/{idx}"))) {
        let file = File::options().write(true).open(format!("{}/{entry}", place.src)).unwrap();
        let found = file.metadata().unwrap();
        file.set_len(0).unwrap();
        file.set_len(found.len()).unwrap();
        file.set_times(FileTimes::new().set_modified(found.modified().unwrap())).unwrap();
    }
    place.holds(&place.src, &place.image, &[]);
    // An archive with data between its headers is refused.
    place.fails(&["--tar=headerball", &place.image, &tar], &["plain.tar: at byte"]);
}

/// Makes two images for a merge, the lower one first.
fn layers(place: &Place, options: &[&str]) -> [String; 2] {
    let base = Place::new();
    for name in ["gone", "dir/sub/gone", "dir/opaque/lower"] {
        let path = format!("{}/{name}", base.src);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text(7, 9000)).unwrap();
    }
    fs::write(format!("{}/below", base.src), text(8, 20_000)).unwrap();
    fs::hard_link(format!("{}/below", base.src), format!("{}/dir/below", base.src)).unwrap();
    base.age();
    let (layer_tar, base_tar) = (layer(place), base.tar("base.tar", &[], &["."]));
    let images = ["lower.erofs", "upper.erofs"].map(|name| place.scratch.path(name));
    for (image, archive) in images.iter().zip([&base_tar, &layer_tar]) {
        place.works(&[&["--tar=f", "--aufs", "--quiet"], options, &[image, archive]].concat());
    }
    images
}

/// The command lines of containerd 2.2 and Kata.
#[test]
fn images_are_merged_as_devices() {
    let place = Place::new();
    let [lower, upper] = &layers(&place, &["-Enoinline_data"]);
    let (image, copy) = (&*place.image, place.scratch.path("copy"));
    let args = ["--aufs", "--ovlfs-strip=1", "--quiet", image, lower, upper];
    place.works(&args);
    let told = place.run(&["--aufs", "--ovlfs-strip=1", &copy, lower, upper]).stdout;
    place.works(&["--aufs", "--ovlfs-strip=1", "--quiet", "--clean=data", &copy, lower, upper]);
    let len = fs::metadata(image).unwrap().len();
    assert!(len < 16_000 && len.is_multiple_of(4096), "{len}");
    let blocks = |path: &str| (fs::metadata(path).unwrap().len() / 4096) as u32;
    let hex = |path: &str| {
        let info: serde_json::Value = serde_json::from_slice(&stdout(&["info", "--json", path])).unwrap();
        info["uuid"].as_str().unwrap().replace('-', "")
    };
    let (first, second) = (blocks(image), blocks(image) + blocks(lower));
    assert_eq!(slots(image), [(hex(lower), blocks(lower), first), (hex(upper), blocks(upper), second)]);
    let all = blocks(image) + blocks(lower) + blocks(upper);
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains(&format!("Filesystem total blocks: {all} (of 4096-byte blocks)")), "{told}");
    place.holds(&copy, image, &[lower, upper]);
    place.holds(&copy, &place.joined("appended", &[image, lower, upper]), &[]);
    assert_eq!(place.marks(), ["dir directory", "dir/opaque directory"]);
    if let Some(original) = place.original(&args, None) {
        let devices = ["--device-a", lower, "--device-a", upper, "--device-b", lower, "--device-b", upper];
        let diff = run(&[&["diff"], &devices[..], &[&original, image]].concat());
        // The root is a new directory.
        let lines = String::from_utf8(diff.stdout).unwrap();
        assert!(
            lines.lines().all(|line| line.starts_with("~ / (")),
            "{lines}{}",
            String::from_utf8_lossy(&diff.stderr)
        );
        assert!(matches!(diff.status.code(), Some(0 | 1)));
        let tags = |image: &str| slots(image).into_iter().map(|(tag, blocks, _)| (tag, blocks)).collect::<Vec<_>>();
        assert_eq!(tags(image), tags(&original));
    } else {
        kiln_tests::without("mkfs.erofs 1.9.4");
    }
    let descriptor = place.scratch.path("vmdk");
    place.works(&["--ovlfs-strip", "--quiet", &format!("--vmdk-desc={descriptor}"), image, lower, upper]);
    let text = fs::read_to_string(&descriptor).unwrap();
    let device = |path: &str| format!("RW {} FLAT \"{path}\" 0\n", blocks(path) * 8);
    assert!(text.contains(&[image, lower, upper].map(device).concat()), "{text}");
    // A merged image can be merged again: its devices take its place.
    let again = place.scratch.path("again");
    place.works(&["--quiet", &again, image]);
    assert_eq!(slots(&again).len(), 2);
    place.holds(&copy, &again, &[lower, upper]);
}

/// Chunks on a device of their own, holes, and the index of an archive.
#[test]
fn devices_of_images_become_devices() {
    let place = Place::new();
    place.add_sparse_files();
    place.age();
    let (image, blob, meta) = (&*place.image, place.scratch.path("blob"), place.scratch.path("meta"));
    place.works(&["--quiet", "--chunksize=4096", &format!("--blobdev={blob}"), &meta, &place.src]);
    place.works(&["--quiet", image, &meta]);
    assert_eq!(slots(image)[0].0, "blob");
    place.holds(&place.src, image, &[&blob]);
    let tar = place.tar("plain.tar", &[], &["."]);
    place.works(&["--tar=i", "--quiet", &meta, &tar]);
    for index in [meta.clone(), place.joined("appended", &[&meta, &tar])] {
        // The block size is that of the last image, whatever option is given.
        place.works(&["--quiet", "-b4096", image, &index]);
        assert_eq!(place.json(&["info"])["block_size"], 512);
        place.holds(&place.src, image, &[&tar]);
    }
}

#[test]
fn what_cannot_be_referred_to_is_named() {
    let place = Place::new();
    let image = &*place.image;
    for (options, layout) in
        [(&[][..], "stored flat, with its end beside the inode (inline data) in"), (&["-zlz4"], "stored compressed in")]
    {
        let [lower, upper] = &layers(&place, options);
        let words = ["again: stored", layout, "upper.erofs: another image", "-Enoinline_data", "--clean=data"];
        place.fails(&["--quiet", image, lower, upper], &words);
        for mark in [".wh.gone", "dir/sub/.wh.gone", "dir/opaque/.wh..wh..opq"] {
            fs::remove_file(format!("{}/{mark}", place.src)).unwrap();
        }
        fs::remove_dir(format!("{}/dir/opaque", place.src)).unwrap();
    }
    // Blocks shorter than those of the image may lie between two of its own.
    let (small, large) = (place.scratch.path("small"), place.scratch.path("large"));
    place.works(&["--quiet", "-b512", "-Enoinline_data", &small, &place.src]);
    fs::create_dir(place.scratch.path("empty")).unwrap();
    place.works(&["--quiet", &large, &place.scratch.path("empty")]);
    place.fails(
        &["--quiet", image, &small, &large],
        &["blocks of 4096 bytes cannot refer to its data at byte", "of device 1"],
    );
    place.works(&["--quiet", image, &large, &small]);
    place.holds(&place.src, image, &[&large, &small]);
    // A file that is not an image.
    let tar = place.tar("plain.tar", &[], &["."]);
    place.fails(&["--quiet", image, &small, &tar], &["plain.tar", "not an EROFS image"]);
    let truncated = Command::new("truncate").args(["-s", "100000", &tar]).status().unwrap();
    assert!(truncated.success());
    place.fails(&["--tar=i", "--quiet", image, &tar], &["plain.tar"]);
}
