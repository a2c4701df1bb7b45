//! Places of data: block sizes, alignment, images inside files and devices.

use crate::common::{LoopDevice, Scratch, fails, kiln, names, run, skip, stderr, stdout, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;

/// Makes some files of different sizes.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir_all(format!("{root}/dir")).unwrap();
    for len in [0, 5, 4096, 5000, 70_000, 300_000] {
        fs::write(format!("{root}/dir/{len}"), text(len, len as usize)).unwrap();
    }
    root
}

/// Checks that the image at byte `offset` of `path` is sound and has the tree, for our reader and for the kernel.
fn holds_the_tree(scratch: &Scratch, root: &str, path: &str, offset: &str) {
    for args in [&["check", path, "--offset", offset][..], &["extract", path, &scratch.path("out"), "--offset", offset]]
    {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }
    stdout(&["diff", root, &scratch.path("out")]);
    fs::remove_dir_all(scratch.path("out")).unwrap();
    let dir = scratch.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let mounted = run(&["mount", "--via", "kernel", "--offset", offset, path, &dir]);
    if !mounted.status.success() {
        return skip("the kernel does not mount EROFS for us");
    }
    let diff = run(&["diff", root, &dir]);
    stdout(&["umount", &dir]);
    assert_eq!(diff.status.code(), Some(0), "{path}: {}", String::from_utf8_lossy(&diff.stdout));
}

#[test]
fn blocks_are_as_long_as_asked_for() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    for (preset, len) in [("plain", "512"), ("balanced", "512"), ("archive", "1k"), ("fast", "2048")] {
        stdout(&["pack", "--preset", preset, "--block-size", len, "--force", &root, &image]);
        holds_the_tree(&scratch, &root, &image, "0");
    }
    let packed = stdout(&["pack", "--block-size", "64k", "--force", "--json", &root, &image]);
    assert_eq!(serde_json::from_slice::<Value>(&packed).unwrap()["block_size"], 65536);
    stdout(&["check", &image]);
    let packed = run(&["pack", "--block-size", "64k", "--force", &root, &image]);
    assert!(stderr(&packed).contains("with pages of 64.0 KiB or more"), "{}", stderr(&packed));
    fails(&["pack", "--block-size", "3000", "--force", &root, &image], 2, "--block-size 3000: use a power of two");
}

#[test]
fn data_and_images_are_aligned() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    for options in [
        &["--preset", "plain"][..],
        &["--preset", "plain", "--block-size", "1k"],
        &["-z", "zstd", "--fragments", "off"],
        &["-z", "zstd", "--fragments", "off", "--layout", "extents=encoded"],
    ] {
        stdout(
            &[&["pack", "--layout", "align=48k", "--layout", "align-image=1M", "--force", &root, &image][..], options]
                .concat(),
        );
        holds_the_tree(&scratch, &root, &image, "0");
        assert!(fs::metadata(&image).unwrap().len().is_multiple_of(1 << 20));
        let mut starts = 0;
        for len in [4096, 5000, 70_000, 300_000] {
            let stat = stdout(&["stat", "--json", "--extents", &image, &format!("dir/{len}")]);
            let stat: Value = serde_json::from_slice(&stat).unwrap();
            let first = &stat["extents"][0];
            // Data beside its inode is not aligned.
            if first["space"] == "0" {
                assert_eq!(first["address"].as_u64().unwrap() % (48 << 10), 0, "{options:?}: {stat}");
                starts += 1;
            }
        }
        assert!(starts >= 3, "{options:?}");
    }
    let refused = ["pack", "--layout", "align=5000", "--force", &root, &image];
    fails(&refused, 2, "--layout align=5000: use a multiple of 4096 bytes, up to 1G");
    fails(
        &["pack", "--layout", "align-image=2G", "--force", &root, &image],
        2,
        "--layout align-image=2147483648: use a multiple",
    );
}

#[test]
fn images_lie_inside_of_files() {
    let scratch = Scratch::new();
    let (root, whole, inside) = (tree(&scratch), scratch.path("whole"), scratch.path("inside"));
    stdout(&["pack", "--layout", "align=64k", &root, &whole]);
    let whole = fs::read(whole).unwrap();

    // A new file has zeros before the image.
    stdout(&["pack", "--layout", "align=64k", "--offset", "8k", &root, &inside]);
    let bytes = fs::read(&inside).unwrap();
    assert!(bytes[..8192].iter().all(|&byte| byte == 0) && bytes[8192..] == whole);
    holds_the_tree(&scratch, &root, &inside, "8192");

    // Bytes of an existing file before and behind the image stay.
    fs::write(&inside, vec![0xE5; 4 << 20]).unwrap();
    fails(&["pack", "--layout", "align=64k", "--offset", "1M", &root, &inside], 1, "exists");
    stdout(&["pack", "--layout", "align=64k", "--offset", "1M", "--force", &root, &inside]);
    let bytes = fs::read(&inside).unwrap();
    let (before, behind) = bytes.split_at(1 << 20);
    let (image, behind) = behind.split_at(whole.len());
    assert!(image == whole && before.iter().chain(behind).all(|&byte| byte == 0xE5) && bytes.len() == 4 << 20);
    holds_the_tree(&scratch, &root, &inside, "1048576");

    // At its end the file grows, and an offset need not be a multiple of the block size.
    stdout(&["pack", "--layout", "align=64k", "--offset", "4193792", "--force", &root, &inside]);
    assert_eq!(fs::metadata(&inside).unwrap().len(), 4_193_792 + whole.len() as u64);
    holds_the_tree(&scratch, &root, &inside, "4193792");
    fails(&["pack", "--offset", "1000", "--force", &root, &inside], 2, "--offset 1000: use a multiple of 512 bytes");
    assert_eq!(scratch.names(), ["inside", "mnt", "src", "whole"]);
}

#[test]
fn block_devices_are_written_at_an_offset() {
    let scratch = Scratch::new();
    let (root, disk) = (tree(&scratch), scratch.path("disk"));
    fs::write(&disk, vec![0xE5; 2 << 20]).unwrap();
    let Some(device) = LoopDevice::new(&disk) else { return skip("no loop devices for us") };
    fails(&["pack", &root, &device.0], 1, "exists");
    stdout(&["pack", "--force", "--offset", "64k", &root, &device.0]);
    holds_the_tree(&scratch, &root, &device.0, "65536");
    fails(&["pack", "--force", "--offset", "2095104", &root, &device.0], 1, "the device 2048 from byte 2095104 on");
    drop(device);
    let bytes = fs::read(&disk).unwrap();
    assert!(bytes[..65536].iter().chain(&bytes[bytes.len() - 4096..]).all(|&byte| byte == 0xE5));
}

#[test]
fn chunks_lie_in_a_file_of_their_own() {
    let scratch = Scratch::new();
    let (root, image, blob) = (tree(&scratch), scratch.path("image"), scratch.path("blob"));
    fs::write(format!("{root}/again"), [text(300_000, 131_072), text(9, 70_000)].concat()).unwrap();
    fs::write(format!("{root}/zeros"), [0; 300_000]).unwrap();
    let packed = ["pack", "--preset", "plain", "--layout", "chunk-size=64k", "--json", "--quiet"];
    let summary = stdout(&[&packed[..], &["--blob-device", &blob, &root, &image]].concat());
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    // The largest file shares two chunks.
    assert_eq!(summary["shared_bytes"], 131_072);
    assert_eq!(summary["blob_bytes"], fs::metadata(&blob).unwrap().len());
    assert!(fs::metadata(&image).unwrap().len() < 16384);
    fails(&["cat", &image, "dir/5"], 1, "");
    stdout(&["check", &image, "--device", &blob]);
    assert_eq!(stdout(&["cat", &image, "dir/70000", "--device", &blob]), text(70_000, 70_000));
    let stat = stdout(&["stat", "--json", "--extents", &image, "zeros", "--device", &blob]);
    assert_eq!(serde_json::from_slice::<Value>(&stat).unwrap()["extents"][0]["stored_as"], "hole");
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    match run(&["mount", "--via", "kernel", "--device", &blob, &image, &dir]).status.success() {
        false => skip("the kernel does not mount EROFS for us"),
        true => {
            let diff = run(&["diff", &root, &dir]);
            stdout(&["umount", &dir]);
            assert_eq!(diff.status.code(), Some(0), "{}", String::from_utf8_lossy(&diff.stdout));
        }
    }
    // Joined, they are one device.
    let both = [fs::read(&image).unwrap(), fs::read(&blob).unwrap()].concat();
    fs::write(scratch.path("both"), both).unwrap();
    holds_the_tree(&scratch, &root, &scratch.path("both"), "0");

    // Neither is replaced unasked, and a failed build leaves nothing.
    fs::remove_file(&image).unwrap();
    let before = fs::read(&blob).unwrap();
    fails(&["pack", "--layout", "chunk-size=64k", "--blob-device", &blob, &root, &image], 1, "exists");
    assert!(fs::read(&blob).unwrap() == before && !fs::exists(&image).unwrap());
    fails(&["pack", "--blob-device", &blob, &root, &image], 2, "--layout");
    let aligned = ["pack", "--layout=align=4k", "--blob-device", &blob, &root, &image];
    fails(&aligned, 2, "--blob-device: needs --layout chunk-size=SIZE");
    let same = ["pack", "--layout", "chunk-size=64k", "--blob-device", &image, &root, &image];
    fails(&same, 2, "the chunks need a file of their own");
    fails(
        &["pack", "--layout", "chunk-size=5000", &root, &image],
        2,
        "--layout chunk-size=5000: use a power of two, 4096 to 1G",
    );
    fails(&["pack", "--layout", "chunk-size=2k", &root, &image], 2, "--layout chunk-size=2048");
}

#[test]
fn inodes_are_as_asked_for() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let make = |options: &[&str]| {
        let preset: &[&str] = if options.contains(&"--preset") { &[] } else { &["--preset", "plain"] };
        stdout(&[&["pack", "--quiet", "--force", &root, &image], preset, options].concat());
        match options.iter().any(|option| option.starts_with("--mtime") || option.starts_with("--set-xattr")) {
            true => drop(stdout(&["check", &image])),
            false => holds_the_tree(&scratch, &root, &image, "0"),
        }
        let info: Value = serde_json::from_slice(&stdout(&["info", "--json", &image])).unwrap();
        let stat: Value = serde_json::from_slice(&stdout(&["stat", "--json", &image, "dir/5"])).unwrap();
        (info, stat)
    };
    let (info, stat) = make(&[]);
    assert_eq!((&stat["layout"], info["feature_compat"].as_u64().unwrap() & 1), (&"inline".into(), 1));
    let (_, stat) = make(&["--layout=inline-data=off"]);
    assert_eq!(stat["layout"], "flat");
    let (_, stat) = make(&["--mtime", "5"]);
    assert_eq!(stat["form"], "compact");
    let (_, stat) = make(&["--mtime", "5", "--layout=inodes=extended"]);
    assert_eq!(stat["form"], "extended");
    for (mtime, build_time) in [(5, 77), (77, 5), (-9, -9)] {
        let (info, stat) = make(&[&format!("--mtime={mtime}"), &format!("--build-time={build_time}")]);
        assert_eq!((&info["build_time"], &stat["mtime"]), (&build_time.into(), &mtime.into()));
    }
    let (info, _) = make(&["--layout=checksum=off"]);
    assert_eq!(info["feature_compat"].as_u64().unwrap() & 1, 0);
    let (info, _) = make(&["--layout=dot=off"]);
    assert_eq!(info["oldest_kernel"], "6.15");
    fails(&["pack", "--layout=dot=off", "--kernel", "6.14", "--force", &root, &image], 1, "needs Linux 6.15");

    let value = "v".repeat(101);
    let size = |options: &[&str]| {
        let set = format!("user.long={value}");
        make(&[&["--set-xattr", &set], options].concat());
        let usage: Value = serde_json::from_slice(&stdout(&["info", "--json", "--stats", &image])).unwrap();
        let metadata = &usage["stats"]["metadata"];
        (metadata["xattrs"].as_u64().unwrap(), metadata["shared_xattrs"].as_u64().unwrap())
    };
    let (shared, alone) = (size(&[]), size(&["--layout", "xattr-share=9"]));
    assert!(shared.1 > 100 && alone.1 == 0 && alone.0 > shared.0, "{shared:?} {alone:?}");
    assert_eq!(size(&["--layout", "xattr-share=8"]), shared);
    assert!(size(&["--layout", "root-xattrs=5000"]).0 > 5000);
    let prefixed =
        size(&["--layout", "xattr-share=9", "--layout", "xattr-prefix=user.lon", "--layout", "xattr-prefix=user.lo"]);
    assert_eq!(prefixed.0, alone.0 - 8 * 4);
    // `check` verifies digests of contents.
    let announced = |info: &Value| info["feature_compat"].as_u64().unwrap() & 0x20;
    assert_eq!(announced(&make(&["--content-digests", "--kernel", "6.4"]).0), 0x20);
    assert_eq!(announced(&make(&["--content-digests"]).0), 0, "a prefix would need Linux 6.4");
    let proved: Value = serde_json::from_slice(&stdout(&["check", "--json", &image])).unwrap();
    assert!(proved["file_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&proved["digested_bytes"], &proved["has_checksum"]), (&proved["file_bytes"], &true.into()));
    let said = stderr(&run(&["check", &image]));
    assert!(said.contains("bytes are covered by digests\n") && said.contains("checksum is right"), "{said}");
    let (mut bytes, mut found) = (fs::read(&image).unwrap(), 0);
    for at in 0..bytes.len() - 7 {
        if &bytes[at..at + 7] == b"sha256:" {
            (bytes[at + 7], found) = (bytes[at + 7] ^ 1, found + 1);
        }
    }
    assert_eq!(found, 5, "all files but the empty one");
    fs::write(&image, bytes).unwrap();
    let checked = run(&["check", "--no-sbcrc", &image]);
    assert_eq!(checked.status.code(), Some(4), "{}", stderr(&checked));
    // A digest of contents far longer than the image is omitted, which is no problem.
    let (sparse, huge) = (scratch.path("sparse"), scratch.path("huge"));
    fs::create_dir(&sparse).unwrap();
    File::create(format!("{sparse}/holes")).unwrap().set_len((1 << 30) + 1).unwrap();
    stdout(&["pack", "--content-digests", "--quiet", &sparse, &huge]);
    let checked = run(&["check", &huge]);
    assert!(stderr(&checked).contains("1 digests not compared"), "{}", stderr(&checked));
    assert_eq!(checked.status.code(), Some(0));
    // With a packed inode, too.
    let set = format!("user.long={value}");
    let options = ["--preset", "balanced", "--set-xattr", &set, "--layout", "xattr-prefix=user.l"];
    let (info, stat) = make(&options);
    assert_eq!((&info["oldest_kernel"], &stat["xattrs"][0]["name"]), (&"6.18".into(), &"user.long".into()));
}

#[test]
fn extents_are_as_long_as_asked_for() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    for options in [&["-z", "zstd"][..], &["-z", "lz4"], &["-z", "zstd", "--layout", "extents=encoded"]] {
        let limit = ["--layout", "max-extent=40000", "--fragments", "off", "--force", "--quiet", &root, &image];
        stdout(&[&["pack"], options, &limit].concat());
        holds_the_tree(&scratch, &root, &image, "0");
        let stat = stdout(&["stat", "--json", "--extents", &image, "dir/300000"]);
        let stat: Value = serde_json::from_slice(&stat).unwrap();
        let extents = stat["extents"].as_array().unwrap();
        assert!(extents.len() >= 8 && extents.iter().all(|one| one["bytes"].as_u64().unwrap() <= 40_000));
    }
    fails(&["pack", "--layout", "max-extent=100", "--force", &root, &image], 1, "extents of at most 100 bytes: use ");
}

/// Runs `script` in a shell, in which `$0` is the command and the other words are its parameters.
fn shell(script: &str, words: &[&str]) -> std::process::Output {
    Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_kiln")]).args(words).output().unwrap()
}

/// Returns the image of the tree as a file.
fn reference(scratch: &Scratch, root: &str) -> Vec<u8> {
    let image = scratch.path("reference");
    stdout(&["pack", "--quiet", root, &image]);
    fs::read(image).unwrap()
}

#[test]
fn links_to_an_output_stay_and_their_target_is_replaced() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let whole = reference(&scratch, &root);
    fs::create_dir(scratch.path("there")).unwrap();
    let [link, second, target] = ["link", "second", "there/image"].map(|name| scratch.path(name));
    symlink("there/image", &second).unwrap();
    symlink("second", &link).unwrap();
    // A link to nothing names a new file.
    stdout(&["pack", &root, &link]);
    assert_eq!(fs::read(&target).unwrap(), whole);
    fs::write(&target, "old").unwrap();
    fails(&["pack", &root, &link], 1, "exists");
    stdout(&["pack", "--force", &root, &link]);
    assert!(fs::read(&target).unwrap() == whole && names(scratch.path("there")) == ["image"]);
    // So do the files beside an image.
    let [blob, vmdk] = ["blob", "vmdk"].map(|name| scratch.path(name));
    for name in [&blob, &vmdk] {
        symlink(format!("there/of-{}", name.rsplit('/').next().unwrap()), name).unwrap();
    }
    let beside = ["--preset", "plain", "--layout", "chunk-size=64k", "--blob-device", &blob, "--vmdk", &vmdk];
    stdout(&[&["pack", "--force"], &beside[..], &[&root, &link]].concat());
    assert_eq!(names(scratch.path("there")), ["image", "of-blob", "of-vmdk"]);
    stdout(&["check", &link, "--device", &blob]);
    for name in [&link, &second, &blob, &vmdk] {
        assert!(fs::symlink_metadata(name).unwrap().is_symlink(), "{name}");
    }
    fs::remove_file(&second).unwrap();
    symlink("link", &second).unwrap();
    fails(&["pack", "--force", &root, &link], 1, "cannot look at");
}

#[test]
fn streams_get_the_same_image() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let whole = reference(&scratch, &root);
    let output = run(&["pack", &root, "-"]);
    assert_eq!((output.status.code(), output.stdout == whole), (Some(0), true), "{}", stderr(&output));
    assert!(stderr(&output).contains("standard output: ") && stderr(&output).contains("mounts on Linux"));

    // Whatever the descriptor is called, it is not opened again: bytes before its place in a file stay.
    let (file, link) = (scratch.path("file"), scratch.path("link"));
    symlink("/dev/stdout", &link).unwrap();
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", &link] {
        let output = shell(
            "(printf before; \"$0\" pack --force --quiet \"$1\" \"$2\"; printf behind) >\"$3\"",
            &[&root, name, &file],
        );
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        assert!(fs::read(&file).unwrap() == [&b"before"[..], &whole, b"behind"].concat(), "{name}");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let output = shell("exec 7>\"$2\"; \"$0\" pack --json \"$1\" /dev/fd/7", &[&root, &file]);
    assert!(output.status.success() && fs::read(&file).unwrap() == whole, "{}", stderr(&output));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["image_bytes"], whole.len());
    fails(&["pack", &root, "/dev/fd/98"], 1, "cannot open");
    fails(&["pack", &root, "/dev/stdin"], 1, "it is open for reading only");

    let fifo = scratch.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    stdout(&["pack", &root, &fifo]);
    assert!(reader.join().unwrap() == whole);

    let socket = scratch.path("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    stdout(&["pack", &root, &socket]);
    assert!(reader.join().unwrap() == whole);
    stdout(&["pack", "--force", &root, "/dev/null"]);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    stdout(&["pack", "--dry-run", &root, "-"]);
    assert_eq!(scratch.names(), ["fifo", "file", "link", "reference", "socket", "src"]);
}

#[test]
fn what_a_stream_cannot_have_is_refused() {
    let scratch = Scratch::new();
    let (root, file) = (tree(&scratch), scratch.path("file"));
    for options in [
        &["--json"][..],
        &["--explain"],
        &["--offset", "4096"],
        &["--vmdk", &file],
        &["--layout", "chunk-size=64k", "--preset", "plain", "--blob-device", &file],
    ] {
        let output = run(&[&["pack"], options, &[&root, "-"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert!(options == ["--json"] || output.stdout.is_empty(), "{options:?}");
    }
    fails(&["pack", "--vmdk", "/dev/null", &root, &file], 2, "only a file can be this");
    assert_eq!(scratch.names(), ["src"]);
    // A terminal, created by script(1).
    let on_terminal = format!("{} pack {root} -", env!("CARGO_BIN_EXE_kiln"));
    match Command::new("script").args(["-qec", &on_terminal, "/dev/null"]).stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.code() == Some(2) && said.contains("standard output is a terminal"), "{said}");
        }
        Err(_) => skip("there is no script(1)"),
    }
}

#[test]
fn a_closed_pipe_and_a_full_spool_are_errors() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = kiln().args(["pack", &root, "-"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("standard output: cannot write: Broken pipe"), "{}", stderr(&output));

    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &disk]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skip("mounting a small file system needs root");
    }
    let by_option = run(&["pack", "--spool", &disk, &root, "-"]);
    let by_environment = kiln().args(["pack", &root, "-"]).env("TMPDIR", &disk).output().unwrap();
    let left = names(&disk);
    Command::new("umount").arg(&disk).status().unwrap();
    for output in [by_option, by_environment] {
        let said = stderr(&output);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{said}");
        assert!(said.contains(&disk) && said.contains("No space left") && said.contains("--spool"), "{said}");
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_written_is_no_part_of_the_source() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let whole = reference(&scratch, &root);
    let inside = |name: &str| format!("{root}/dir/{name}");
    let dir_time = fs::metadata(format!("{root}/dir")).unwrap().modified().unwrap();
    let packed_as = |name: &str, script: &str| {
        fs::write(inside(name), "an old image").unwrap();
        File::open(format!("{root}/dir")).unwrap().set_modified(dir_time).unwrap();
        let output = shell(script, &[&root, &inside(name)]);
        assert_eq!(output.status.code(), Some(0), "{script}: {}", stderr(&output));
        assert!(fs::read(inside(name)).unwrap() == whole, "{script}");
        fs::remove_file(inside(name)).unwrap();
        output
    };
    let said = packed_as("x.erofs", "\"$0\" pack --force \"$1\" \"$2\"");
    assert!(stderr(&said).contains("left out, for it is what is being written: dir/x.erofs"), "{}", stderr(&said));
    let said = packed_as("x.erofs", "\"$0\" pack --force --json \"$1\" \"$2\"");
    let summary: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(summary["outputs"], serde_json::json!([{"path": "dir/x.erofs"}]));
    packed_as("x.erofs", "\"$0\" pack --quiet \"$1\" - >\"$2\"");
    packed_as("x.erofs", "cd \"$1\" && ln -s /dev/stdout ../out && \"$0\" pack --quiet . ../out >dir/x.erofs");

    // Reports are written to a file in the source, and so are the image's companions.
    fs::write(inside("x.erofs"), "an old image").unwrap();
    fs::write(inside("blob"), "old chunks").unwrap();
    let options = "--force --preset plain --layout chunk-size=64k --blob-device \"$1/dir/blob\" --vmdk \"$1/dir/vmdk\"";
    let script = format!("\"$0\" pack {options} --json \"$1\" \"$1/dir/x.erofs\" >\"$1/dir/json\" 2>\"$1/log\"");
    let output = shell(&script, &[&root]);
    assert_eq!(output.status.code(), Some(0), "{}", fs::read_to_string(format!("{root}/log")).unwrap());
    let summary: Value = serde_json::from_slice(&fs::read(inside("json")).unwrap()).unwrap();
    let outputs: Vec<_> =
        summary["outputs"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(outputs, ["dir/blob", "dir/json", "dir/x.erofs", "log"]);
    let listed = stdout(&["ls", &inside("x.erofs"), "dir"]);
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 6);
}

#[test]
fn what_replaces_a_file_keeps_its_mode_and_owner() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::write(&image, "old").unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    let owned = std::os::unix::fs::chown(&image, Some(12), Some(34)).is_ok();
    let before = fs::metadata(&image).unwrap();
    stdout(&["pack", "--force", &root, &image]);
    let access = |found: &fs::Metadata| (found.mode(), found.uid(), found.gid());
    assert_eq!(access(&fs::metadata(&image).unwrap()), access(&before));
    // mkfs.erofs opens the existing file.
    let mkfs = scratch.path("mkfs.erofs");
    symlink(env!("CARGO_BIN_EXE_kiln"), &mkfs).unwrap();
    assert!(Command::new(&mkfs).args([&image, &root]).output().unwrap().status.success());
    assert_eq!(access(&fs::metadata(&image).unwrap()), access(&before));
    if !owned {
        skip("giving files away needs root");
    }
}
