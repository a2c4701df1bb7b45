//! `kiln pack`, from directory to image and back.

use crate::common::readers::{has_tree, open};
use crate::common::{Scratch, fails, kiln, names, run, skip, stderr, stdout, text};
use kiln_tests::without;
use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a small tree with some of everything that needs no privilege.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir_all(format!("{root}/dir/empty")).unwrap();
    fs::write(format!("{root}/text"), text(1, 300_000)).unwrap();
    fs::write(format!("{root}/again"), text(1, 300_000)).unwrap();
    fs::write(format!("{root}/dir/small"), "small").unwrap();
    fs::write(format!("{root}/dir/nothing"), "").unwrap();
    fs::hard_link(format!("{root}/text"), format!("{root}/dir/linked")).unwrap();
    fs::set_permissions(format!("{root}/dir/small"), fs::Permissions::from_mode(0o4711)).unwrap();
    symlink("../text", format!("{root}/dir/link")).unwrap();
    root
}

fn pack(args: &[&str]) {
    let output = run(&[&["pack"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn metadata_is_compressed_by_default_for_kernels_that_have_it() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for idx in 0..2000 {
        fs::write(format!("{root}/dir/file-{idx}"), text(idx, 50)).unwrap();
    }
    let [off, image, blob] = ["off.erofs", "image.erofs", "blob"].map(|name| scratch.path(name));
    let has_metabox = |image: &str| open(image, None).superblock().metabox_nid.is_some();
    for options in [
        &["--kernel", "6.17"][..],
        &["--kernel", "6.18", "--preset", "fast", "--block-size", "1k"],
        &["--kernel", "6.17", "--preset", "archive"],
        &["--kernel", "6.17", "--fragments", "off", "--content-digests"],
        &["--kernel", "6.17", "--layout=extents=index,dot=off,inodes=extended", "-C", "16k"],
        &["--kernel", "6.18", "--layout=xattr-prefix=user.long."],
    ] {
        let pack = |more: &[&str]| pack(&[&["--force", "--quiet"], options, more].concat());
        pack(&[&root, &image]);
        pack(&["--layout=metadata=off", &root, &off]);
        assert!(has_metabox(&image) && !has_metabox(&off), "{options:?}");
        for image in [&image, &off] {
            has_tree(image, &root);
        }
        let [len, off_len] = [&image, &off].map(|path| fs::metadata(path).unwrap().len());
        assert!(len < off_len, "{options:?}: {len} from {off_len}");
        // Each is a base of the other.
        for (base, layout) in [(&image, "metadata=off"), (&off, "metadata")] {
            let next = scratch.path("next.erofs");
            pack(&["--base", base, "--layout", layout, &root, &next]);
            assert_eq!(has_metabox(&next), layout == "metadata", "{options:?}");
            has_tree(&next, &root);
        }
    }
    // What was asked for comes first.
    for options in [
        &["--kernel", "6.16"][..],
        &["--layout=extents=encoded"],
        &["--kernel", "6.17", "--preset", "plain"],
        &["--kernel", "6.17", "--preset", "dataset"],
        &["--kernel", "6.17", "-z", "none", "--layout=chunk-size=4k", "--blob-device", &blob],
        &["--kernel", "6.17", "--layout=tail-packing"],
        &["--kernel", "6.17", "--layout=xattr-prefix=user.long.", "--fragments", "off"],
    ] {
        pack(&[&["--force", "--quiet"], options, &[&root, &image]].concat());
        assert!(!has_metabox(&image), "{options:?}");
    }
}

#[test]
fn metadata_is_compressed() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for idx in 0..2000 {
        fs::write(format!("{root}/dir/file-{idx}"), text(idx, 50)).unwrap();
    }
    let [plain, image] = ["plain.erofs", "image.erofs"].map(|name| scratch.path(name));
    pack(&[&root, &plain]);
    let len = |path: &str| fs::metadata(path).unwrap().len();
    for (options, kernel) in [
        (&["--layout=compress-dirs"][..], "6.10"),
        (&["--layout=metadata"], "6.17"),
        (&["--layout=metadata=8k", "--kernel", "6.17", "-z", "lz4"], "6.17"),
        (&["--layout=metadata=64k:lzma", "--layout", "extents=index", "--preset", "dataset"], "6.17"),
        (&["--layout=metadata=1M:zstd:9", "--preset", "plain"], "6.17"),
    ] {
        pack(&[options, &["--force", &root, &image]].concat());
        stdout(&["check", &image]);
        stdout(&["diff", &root, &image]);
        stdout(&["diff", &plain, &image]);
        assert!(len(&image) < len(&plain), "{options:?}: {} from {}", len(&image), len(&plain));
        let info = stdout(&["info", "--stats", "--json", &image]);
        let info: Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["oldest_kernel"], kernel, "{options:?}");
    }
    for (option, kernel) in
        [("--layout=metadata", "6.16"), ("--layout=metadata=on", "6.16"), ("--layout=compress-dirs", "6.0")]
    {
        let refused = scratch.path("refused.erofs");
        let words = format!("but the image is for Linux {kernel}");
        fails(&["pack", option, "--kernel", kernel, &root, &refused], 2, &words);
    }
    fails(&["pack", "--layout=metadata=many", &root, &image], 2, "metadata=many");
}

#[test]
fn what_is_packed_comes_out_again() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for (idx, options) in [
        &["--preset", "plain"][..],
        &["--preset", "fast"],
        &[],
        &["--preset", "archive"],
        &["-z", "lzma", "-C", "64k"],
        &["-z", "deflate,9", "-C", "4096", "--dedupe", "off"],
        &["--preset", "dataset"],
        &["--kernel", "5.15"],
        &["--kernel", "6.15"],
        &[
            "--layout",
            "extents=encoded",
            "--fragments",
            "all",
            "--layout",
            "packed-cluster=8k",
            "--dedupe",
            "parts",
            "-C",
            "16k",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let (image, out) = (scratch.path(&format!("{idx}.erofs")), scratch.path(&format!("out{idx}")));
        pack(&[options, &[&root, &image]].concat());
        let checked = run(&["check", &image]);
        assert_eq!(checked.status.code(), Some(0), "{options:?}: {}", stderr(&checked));
        stdout(&["extract", &image, &out]);
        for path in ["text", "again", "dir/small", "dir/nothing"] {
            let (before, after) = (format!("{root}/{path}"), format!("{out}/{path}"));
            assert!(fs::read(&before).unwrap() == fs::read(&after).unwrap(), "{path} {options:?}");
            let (before, after) = (fs::metadata(before).unwrap(), fs::metadata(after).unwrap());
            assert_eq!((before.mode(), before.mtime_nsec()), (after.mode(), after.mtime_nsec()), "{path} {options:?}");
        }
        assert_eq!(fs::metadata(format!("{out}/text")).unwrap().nlink(), 2);
        assert_eq!(fs::read_link(format!("{out}/dir/link")).unwrap().as_os_str(), "../text");
        assert!(fs::read_dir(format!("{out}/dir/empty")).unwrap().next().is_none());
    }
}

/// Makes many small files, and a large one that is contained in another one.
fn small_files(scratch: &Scratch) -> String {
    let root = scratch.path("small");
    fs::create_dir(&root).unwrap();
    for idx in 0..40 {
        fs::write(format!("{root}/{idx}"), text(idx, 500 * idx as usize)).unwrap();
    }
    let large = text(100, 400_000);
    fs::write(format!("{root}/large"), &large).unwrap();
    fs::write(format!("{root}/larger"), [&large[..], &text(101, 50_000)].concat()).unwrap();
    root
}

#[test]
fn presets_pack_and_share_as_the_kernel_allows() {
    let scratch = Scratch::new();
    let root = small_files(&scratch);
    let image = scratch.path("image");
    for (options, algorithm, packed, shared, encoded) in [
        (&["--preset", "plain"][..], None, false, false, false),
        (&["--preset", "plain", "--kernel", "6.15"], None, false, false, false),
        (&["--preset", "fast"], Some("lz4"), true, false, false),
        (&["--preset", "fast", "--dedupe", "parts"], Some("lz4"), true, true, false),
        (&["--preset", "balanced"], Some("zstd"), true, true, false),
        (&["--preset", "archive"], Some("lzma"), true, true, false),
        (&["--preset", "dataset"], Some("zstd"), false, false, false),
        (&["--dedupe", "files", "--fragments", "off"], Some("zstd"), false, false, false),
        (&["--kernel", "6.1"], Some("lz4"), true, true, false),
        (&["--kernel", "6.0"], Some("lz4"), false, false, false),
        (&["--kernel", "6.14"], Some("zstd"), true, true, false),
        (&["--kernel", "6.15"], Some("zstd"), true, true, true),
        (&["--kernel", "6.15", "--layout", "extents=index"], Some("zstd"), true, true, false),
        (&["--layout", "extents=encoded"], Some("zstd"), true, true, true),
    ] {
        let args = [&["pack", "--force", "--quiet", "--json"], options, &[&root, &image]].concat();
        let summary: Value = serde_json::from_slice(&stdout(&args)).unwrap();
        let is_positive = |name: &str| summary[name].as_u64().unwrap() > 0;
        assert_eq!((is_positive("packed_files"), is_positive("packed_bytes")), (packed, packed), "{options:?}");
        assert_eq!(is_positive("shared_bytes"), shared, "{options:?}");
        let info: Value = serde_json::from_slice(&stdout(&["info", "--json", &image])).unwrap();
        assert_eq!(info["algorithms"][0]["name"].as_str(), algorithm, "{options:?}");
        let features = info["features"].as_array().unwrap();
        assert_eq!(features.iter().any(|one| one["name"] == "48-bit addresses"), encoded, "{options:?}");
        assert_eq!(run(&["check", &image]).status.code(), Some(0), "{options:?}");
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0), "{options:?}");
        if let Some(at) = options.iter().position(|option| *option == "--kernel") {
            let number =
                |text: &str| text.split_once('.').map(|(a, b)| (a.parse::<u32>().unwrap(), b.parse::<u32>().unwrap()));
            assert!(number(info["oldest_kernel"].as_str().unwrap()) <= number(options[at + 1]), "{options:?}: {info}");
        }
    }
}

#[test]
fn a_small_index_of_parts_is_mentioned() {
    let scratch = Scratch::new();
    let root = small_files(&scratch);
    let output = run(&["pack", "--json", "--memory", "0", &root, &scratch.path("image")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(summary["dropped_chunks"], 0);
    assert!(stderr(&output).contains("had no room in the index of parts: a higher --memory"), "{}", stderr(&output));
    let enough = run(&["pack", &root, &scratch.path("enough")]);
    assert!(!stderr(&enough).contains("--memory") && stderr(&enough).contains("parts stored once"));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let (one, many) = (scratch.path("one"), scratch.path("many"));
    pack(&["--threads", "1", &root, &one]);
    pack(&["--threads", "7", &root, &many]);
    assert!(fs::read(one).unwrap() == fs::read(many).unwrap());
}

#[test]
fn source_date_epoch_is_the_latest_time() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let packed = |epoch: &str, image: &str| {
        kiln().args(["pack", &root, image]).env("SOURCE_DATE_EPOCH", epoch).output().unwrap()
    };
    let image = scratch.path("image");
    assert_eq!(packed("1000000000", &image).status.code(), Some(0));
    let stat: Value = serde_json::from_slice(&stdout(&["stat", "--json", &image, "text"])).unwrap();
    assert_eq!((&stat["mtime"], &stat["mtime_nsec"]), (&1_000_000_000.into(), &0.into()));
    let bad = packed("yesterday", &scratch.path("bad"));
    assert_eq!((bad.status.code(), stderr(&bad).contains("SOURCE_DATE_EPOCH")), (Some(2), true));
}

#[test]
fn the_summary_is_for_people_and_for_programs() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let output = run(&["pack", "--json", &root, &scratch.path("image")]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["schema"], &summary["files"], &summary["hard_links"]), (&2.into(), &4.into(), &1.into()));
    assert_eq!((&summary["duplicate_files"], &summary["oldest_kernel"]), (&1.into(), &"6.10".into()));
    assert_eq!(summary["image_bytes"], fs::metadata(scratch.path("image")).unwrap().len());
    let told = stderr(&output);
    for words in ["4 files", "1 hard links", "deduplicated", "scan ", "Linux 6.10 and later, because of zstd"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    let quiet = run(&["pack", "--quiet", &root, &scratch.path("quiet")]);
    assert!(quiet.stderr.is_empty() && quiet.stdout.is_empty());
}

#[test]
fn hints_say_how_files_are_compressed() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::create_dir(format!("{root}/lib")).unwrap();
    for (seed, name) in (20..).zip(["a.so", "b.so", "plain"]) {
        fs::write(format!("{root}/lib/{name}"), text(seed, 200_000)).unwrap();
    }
    let file = scratch.path("hints");
    fs::write(&file, "# libraries\n\n/lib/=lzma,1:1M\nagain=lz4\n").unwrap();
    let hints = ["--hints", &file, "--hint", "b.so=none", "--hint", "again=lz4hc,9"];
    let output = run(&[&["pack", "--json", "--force"], &hints[..], &[&root, &image]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ways: Vec<String> = summary["ways"].as_array().unwrap().iter().map(Value::to_string).collect();
    for way in [r#""algorithm":"lzma","bytes":400000,"files":2,"level":1,"pcluster_bytes":1048576"#, "lz4hc", "zstd"] {
        assert!(ways.iter().any(|used| used.contains(way)), "{way} is not in {ways:?}");
    }
    assert_eq!(summary["duplicate_files"], 0, "equal files that are read in different ways");
    assert!(stderr(&output).contains("lzma,1 in 1.0 MiB: 390.6 KiB in 2 files"), "{}", stderr(&output));
    let document = stdout(&["stat", "--json", "--extents", &image, "lib/b.so"]);
    let stat: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(stat["extents"][0]["stored_as"], "raw", "{stat}");
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
    fs::write(&file, "a=lz4\n\nb\n").unwrap();
    for (args, words) in [
        (&["--hints", &file][..], "hints, line 3: b: write it as GLOB=WAY"),
        (&["--hint", "*.so=gzip"], "--hint: gzip: unknown compression method"),
        (&["--hint", "*.so=zstd", "--kernel", "6.1"], "--hint: zstd came with Linux 6.10"),
    ] {
        fails(&[&["pack"], args, &[&root, &scratch.path("none")]].concat(), 2, words);
    }
}

#[test]
fn dictionaries_are_as_long_as_asked_for() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::write(format!("{root}/long"), text(40, 700_000)).unwrap();
    for (way, said) in [
        ("zstd,9,dictsize=16k", "zstd, window of 16.0 KiB"),
        ("deflate,9,dictsize=5000", "deflate, window of 4.0 KiB"),
        ("lzma,1,dictsize=5k", "lzma, dictionary of 5.0 KiB"),
    ] {
        for extra in [&["-C", "256k"][..], &["--layout", "extents=encoded"], &["--hint", &format!("long={way}:16k")]] {
            stdout(&[&["pack", "--force", "-q", "-z", way], extra, &[&root, &image]].concat());
            let info = String::from_utf8(stdout(&["info", &image])).unwrap();
            assert!(info.contains(said), "{way} {extra:?}: {info}");
            assert_eq!(run(&["check", &image]).status.code(), Some(0), "{way} {extra:?}");
            assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0), "{way} {extra:?}");
        }
    }
    let tried = ["-z", "lz4", "--try", "zstd,dictsize=2k,lzma,9,dictsize=64k", "--try-budget", "1000"];
    let document = stdout(&[&["pack", "--force", "--json"], &tried[..], &[&root, &image]].concat());
    let summary: Value = serde_json::from_slice(&document).unwrap();
    assert!(summary["ways"].as_array().unwrap().iter().any(|way| way["dictionary_bytes"] == 64 << 10), "{summary}");
    for (args, words) in [
        (["-z", "zstd,dictsize=2M"], "zstd has no dictionary of 2097152 bytes: use 1k to 1m"),
        (["-z", "lz4,dictsize=4k"], "lz4 has no dictionary of 4096 bytes"),
        (["--hint", "long=deflate,12,dictsize=4k"], "from level 10 on 32k"),
    ] {
        fails(&[&["pack"], &args[..], &[&root, &scratch.path("none")]].concat(), 2, words);
    }
}

#[test]
fn images_for_old_kernels_say_so() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("root"), scratch.path("image"));
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/text"), text(5, 300_000)).unwrap();
    fs::write(format!("{root}/sparse"), text(6, 10_000)).unwrap();
    let sparse = fs::OpenOptions::new().write(true).open(format!("{root}/sparse")).unwrap();
    sparse.set_len(10_000 + (1 << 20)).unwrap();
    for (kernel, presets, oldest) in [
        ("5.4", &["plain", "fast", "balanced", "archive", "dataset"][..], "5.4"),
        ("5.10", &["balanced"], "5.4"),
        ("5.12", &["plain", "archive"], "5.4"),
        ("5.13", &["balanced"], "5.13"),
        ("5.14", &["plain"], "5.4"),
        ("5.15", &["plain"], "5.15"),
    ] {
        for preset in presets {
            let args = ["pack", "--force", "--json", "--preset", preset, "--kernel", kernel, &root, &image];
            let summary: Value = serde_json::from_slice(&stdout(&args)).unwrap();
            assert_eq!(summary["oldest_kernel"], oldest, "{preset} for {kernel}");
            let info: Value = serde_json::from_slice(&stdout(&["info", "--json", &image])).unwrap();
            assert_eq!(info["oldest_kernel"], oldest, "{preset} for {kernel}");
            let filled = &summary["filled_hole_bytes"];
            assert_eq!(filled.as_u64(), Some(if oldest == "5.15" { 0 } else { 1_046_288 }), "{preset} for {kernel}");
            assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
            assert_eq!(run(&["check", &image]).status.code(), Some(0));
        }
    }
    let told = stderr(&run(&["pack", "--force", "--kernel", "5.4", &root, &image]));
    assert!(told.contains("holes stored as zeros: 1021.8 KiB in 1 files"), "{told}");
    assert!(told.contains("mounts on Linux 5.4 and later"), "{told}");
}

/// For kernels without partial references, holes become zeros, which take room.
#[test]
fn holes_of_old_kernels_are_chunks_where_zeros_take_more() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("root"), scratch.path("image"));
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/sparse"), text(41, 512 << 10)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(format!("{root}/sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    for (kernel, layout) in [("6.0", "chunk"), ("6.1", "compressed")] {
        stdout(&["pack", "--force", "-q", "-z", "lz4", "--kernel", kernel, &root, &image]);
        let stat = String::from_utf8(stdout(&["stat", &image, "sparse"])).unwrap();
        let line = stat.lines().find(|line| line.starts_with("Layout:")).unwrap();
        assert!(line.contains(layout), "{kernel}: {line}");
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
    }
}

#[test]
fn what_is_tried_is_taken_where_it_saves_within_the_budget() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    for seed in 30..34 {
        fs::write(format!("{root}/{seed}"), text(seed, 500_000)).unwrap();
    }
    let lzma = |extra: &[&str]| {
        let base = ["pack", "--json", "--force", "-z", "lz4", "--fragments", "off"];
        let document = stdout(&[&base, extra, &[&root, &image]].concat());
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
        let summary: Value = serde_json::from_slice(&document).unwrap();
        let ways = summary["ways"].as_array().unwrap().clone();
        ways.iter().find(|way| way["algorithm"] == "lzma").map_or(0, |way| way["files"].as_u64().unwrap())
    };
    assert_eq!(lzma(&[]), 0);
    let few = lzma(&["--try", "zstd,15,lzma", "--try-budget", "100"]);
    let all = lzma(&["--try", "lzma", "--try-budget", "1000"]);
    assert!(0 < few && few < all && all == 5, "{few} {all}");
    for (args, words) in [
        (&["--try", "gzip"][..], "--try gzip: unknown compression method"),
        (&["--try", "3"], "--try 3: unknown compression method"),
        (&["--try", "zstd", "--kernel", "6.1"], "zstd came with Linux 6.10"),
        (&["--try", "zstd", "-z", "none"], "--try: nothing is compressed"),
        (&["--try", "zstd", "--try-budget", "0.5"], "1 to 1000"),
        (&["--try-budget", "2"], "--try"),
    ] {
        fails(&[&["pack"], args, &[&root, &scratch.path("none")]].concat(), 2, words);
    }
}

/// A hint that matches nothing is most likely a mistake.
#[test]
fn hints_that_match_nothing_are_told() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("src"), scratch.path("image"));
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/a.txt"), text(1, 5000)).unwrap();
    let args =
        ["pack", "--force", "--hint", "*.txt=lz4", "--hint", "\x1b*.so=none", "--hint", "lib/=lzma", &root, &image];
    let said = stderr(&run(&args));
    assert!(said.contains("kiln: 2 hints match nothing: \\u{1b}*.so, ...\n"), "{said}");
    assert_eq!(stderr(&run(&[&args[..], &["-q"]].concat())), "");
    assert!(!stderr(&run(&["pack", "--force", "--hint", "*.txt=lz4", &root, &image])).contains("match nothing"));
}

#[test]
fn data_lies_in_the_order_of_a_list() {
    let scratch = Scratch::new();
    let (root, image, list) = (scratch.path("src"), scratch.path("image"), scratch.path("list"));
    fs::create_dir_all(format!("{root}/dir")).unwrap();
    let files = ["a", "b", "c", "dir/d"];
    for (seed, name) in (0..).zip(files) {
        fs::write(format!("{root}/{name}"), text(seed, 100_000)).unwrap();
    }
    fs::write(&list, "/dir/d\ndir\nnot/there\nb\n/dir/d\n").unwrap();
    for fragments in ["off", "all"] {
        let args = ["pack", "--force", "--fragments", fragments, "--order", &list, &root, &image];
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("1 paths of --order are not in the image: not/there"), "{}", stderr(&output));
        let place = |name: &&str| {
            let document = stdout(&["stat", "--json", "--extents", &image, name]);
            let stat: Value = serde_json::from_slice(&document).unwrap();
            stat["extents"][0]["address"].as_u64().unwrap_or_else(|| panic!("{stat}"))
        };
        let mut by_place = files;
        by_place.sort_by_key(place);
        assert_eq!(by_place, ["dir/d", "b", "a", "c"], "{fragments}");
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
    }
    fails(&["pack", "--order", &scratch.path("none"), &root, &scratch.path("other")], 1, "none: cannot read");
}

#[test]
fn ends_of_files_are_packed() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    for seed in 40..60 {
        fs::write(format!("{root}/{seed}"), text(seed, 140_000 + 1000 * seed as usize)).unwrap();
    }
    let size = |fragments: &str| {
        let document = stdout(&["pack", "--json", "--force", "--nice", "1", "--fragments", fragments, &root, &image]);
        assert_eq!(run(&["check", &image]).status.code(), Some(0));
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
        let summary: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(summary["end_files"].as_u64().unwrap() > 10, fragments == "tails", "{summary}");
        summary["image_bytes"].as_u64().unwrap()
    };
    assert!(size("tails") < size("small"));
    let dir = scratch.path("mnt");
    stdout(&["pack", "--force", "--fragments", "tails", "--kernel", "6.10", &root, &image]);
    fs::create_dir(&dir).unwrap();
    if !run(&["mount", "--via", "kernel", &image, &dir]).status.success() {
        return skip("the kernel does not mount EROFS for us");
    }
    let diff = run(&["diff", &root, &dir]);
    stdout(&["umount", &dir]);
    assert_eq!(diff.status.code(), Some(0), "{}", stderr(&diff));
    fails(
        &["pack", "--fragments", "tails", "--kernel", "5.15", &root, &scratch.path("none")],
        2,
        "--fragments needs Linux 6.1",
    );
}

#[test]
fn uuid_and_label_are_as_given() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let uuid = "12345678-9abc-4def-8123-456789abcdef";
    pack(&["-U", uuid, "-L", "fifteen bytes..", &root, &image]);
    let info: Value = serde_json::from_slice(&stdout(&["info", "--json", &image])).unwrap();
    assert_eq!((&info["uuid"], &info["label"]), (&uuid.into(), &"fifteen bytes..".into()));
    fails(&["pack", "-L", "sixteen bytes...", &root, &scratch.path("b")], 2, "at most 15");
    fails(&["pack", "-U", "no uuid", &root, &scratch.path("b")], 2, "--uuid");
}

#[test]
fn an_image_that_exists_is_kept_unless_forced() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::write(&image, "precious").unwrap();
    fails(&["pack", &root, &image], 1, "--force");
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    // The error comes before anything is read.
    fails(&["pack", &scratch.path("missing"), &image], 1, "--force");
    pack(&["--force", &root, &image]);
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    assert_eq!(scratch.names(), ["image", "src"]);
    fails(&["pack", "--force", &root, &scratch.path("src")], 2, "only a regular file");
    fails(&["pack", &root, &scratch.path("no/such/image")], 1, "no/such/image");
}

#[test]
fn wishes_that_a_kernel_cannot_have_are_refused() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fails(&["pack", "-z", "zstd", "--kernel", "6.6", &root, &image], 2, "zstd came with Linux 6.10");
    fails(&["pack", "--kernel", "5.3", &root, &image], 2, "5.4 and later");
    fails(
        &["pack", "-C", "64k", "--kernel", "5.10", &root, &image],
        2,
        "--cluster-size 65536: more than a block needs Linux 5.13",
    );
    let hint = "*=lz4:8k";
    fails(&["pack", "--hint", hint, "--kernel", "5.12", &root, &image], 2, "more than a block needs Linux 5.13");
    fails(
        &["pack", "--layout", "chunk-size=4k", "--kernel", "5.14", &root, &image],
        1,
        "chunk-based files needs Linux 5.15",
    );
    fails(&["pack", "--kernel", "new", &root, &image], 2, "X.Y");
    fails(&["pack", "-z", "gzip", &root, &image], 2, "gzip");
    fails(&["pack", "-C", "5000", &root, &image], 2, "multiple of 4096");
    fails(
        &["pack", "--layout", "packed-cluster=2M", &root, &image],
        2,
        "--layout packed-cluster=2097152: use a multiple of 4096",
    );
    fails(&["pack", "--layout", "packed-cluster=8k", "--fragments", "off", &root, &image], 2, "no files are packed");
    fails(&["pack", "--fragments", "all", "--kernel", "6.0", &root, &image], 2, "--fragments needs Linux 6.1");
    fails(&["pack", "--fragments", "some", &root, &image], 2, "--fragments");
    fails(&["pack", "--dedupe", "parts", "--kernel", "5.15", &root, &image], 2, "--dedupe parts needs Linux 6.1");
    fails(&["pack", "--layout", "extents=encoded", "--kernel", "6.12", &root, &image], 2, "encoded needs Linux 6.15");
    fails(&["pack", "-z", "none", "--dedupe", "parts", &root, &image], 2, "nothing is compressed");
    fails(&["pack", &scratch.path("missing"), &image], 1, "missing");
    assert_eq!(scratch.names(), ["src"]);
}

#[test]
fn unreadable_inputs_end_the_build_or_are_skipped() {
    if !geteuid().is_root() {
        return skip("becoming someone else needs root");
    }
    let scratch = Scratch::new();
    let root = tree(&scratch);
    fs::create_dir(format!("{root}/closed")).unwrap();
    for (path, mode) in [("text", 0o000), ("dir/small", 0o755), ("closed", 0o000)] {
        fs::set_permissions(format!("{root}/{path}"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(65534), Some(65534)).unwrap();
    let pack = |extra: &[&str], image: &str| {
        kiln().arg("pack").args(extra).args([&root, &format!("{out}/{image}")]).uid(65534).gid(65534).output()
    };
    let Ok(output) = pack(&[], "all") else { return skip("others may not run this program") };
    assert_eq!((output.status.code(), stderr(&output).contains("closed: ")), (Some(1), true), "{}", stderr(&output));
    assert!(names(&out).is_empty());
    // The scan and the builder tell how the rest can be packed, unless nothing of the source may be read.
    let advice = "--keep-going packs the rest";
    assert!(stderr(&output).contains(advice), "{}", stderr(&output));
    for (path, mode, is_advised) in
        [("/closed", 0o755, true), ("", 0o000, false), ("", 0o755, true), ("/closed", 0, true)]
    {
        fs::set_permissions(format!("{root}{path}"), fs::Permissions::from_mode(mode)).unwrap();
        let said = stderr(&pack(&[], "all").unwrap());
        assert_eq!(said.contains(advice), is_advised, "{path} {mode:o}: {said}");
    }
    let output = pack(&["--keep-going", "--json"], "some").unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("skipped: closed: "), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    // All are listed by their paths in the source, no matter if the scan or the builder found them.
    let skipped: Vec<_> =
        summary["skipped"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(skipped, ["closed", "text"]);
    assert_eq!(run(&["check", &format!("{out}/some")]).status.code(), Some(0));
}

#[test]
fn a_file_that_changes_is_stored_as_it_is_read() {
    // Files in sysfs have the size of a page until they are read.
    let src = "/sys/devices/system/cpu";
    let Ok(text) = fs::read(format!("{src}/online")) else { return skip("there is no sysfs") };
    let scratch = Scratch::new();
    let (image, list) = (scratch.path("image"), scratch.path("list"));
    fs::write(&list, "online\npossible\n").unwrap();
    for preset in ["plain", "balanced", "archive"] {
        let pack = ["pack", "--force", "--preset", preset, "--from-list", &list];
        fails(&[&pack[..], &[src, &image]].concat(), 1, "online: changed while the image was being built");
        let output = run(&[&pack[..], &["--keep-going", "--json", src, &image]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("stored as it was when it was read: online: changed"), "{}", stderr(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&summary["skipped"], &summary["changed"][0]["path"]), (&serde_json::json!([]), &"online".into()));
        let mut page = text.clone();
        page.resize(4096, 0);
        assert_eq!(stdout(&["cat", &image, "online"]), page);
        stdout(&["check", &image]);
    }
}

#[test]
fn a_file_that_is_no_source_is_told_what_to_do() {
    let scratch = Scratch::new();
    let (src, mut iso) = (scratch.path("file"), vec![0; 33 << 10]);
    iso[32769..32774].copy_from_slice(b"CD001");
    for (bytes, words) in [
        (&iso[..], "this is an ISO 9660 image: mount it and pack the mount point"),
        (b"!<arch>\n", "this is an ar archive or a Debian package: unpack it first, for example with ar x"),
        (b"\x89HDF\r\n\x1A\n", "this is an HDF5 file: it has no files: export its datasets to files first"),
        (b"\x1F\x9D\x90", "this is a file compressed by compress (.Z): decompress it first, for example with gzip -dc"),
        (b"\x89LZO\0\r\n\x1A\n", "this is a file compressed by lzop: decompress it first"),
        (b"xar!", "this is a xar archive: unpack it first, for example with bsdtar -xf"),
        (
            b"PK\x07\x08PK\x03\x04",
            "this is the first part of a split zip archive: join its parts first, for example with zip -s 0",
        ),
        (b"#!/bin/sh\n", "this is a script without a zip archive appended"),
        (b"vhdxfile", "this is a VHDX image: attach it"),
        (
            b"\x1F\x8B\x08",
            "it is compressed with gzip, but its contents are not an archive or image that kiln supports",
        ),
        (b"text", "it is not a directory, archive or image that kiln supports"),
        (b"", "the file is empty"),
    ] {
        fs::write(&src, bytes).unwrap();
        fails(&["pack", &src, &scratch.path("none")], 2, &format!("{src}: {words}"));
        fails(&["pack", "--estimate", &src], 2, words);
    }
    assert_eq!(scratch.names(), ["file"]);
}

#[test]
fn a_partition_of_a_disk_is_packed() {
    let scratch = Scratch::new();
    let (root, image, disk) = (tree(&scratch), scratch.path("image"), scratch.path("disk"));
    let archive = stdout(&["convert", "--to", "tar", &root, "-"]);
    // A master boot record whose second partition contains the archive.
    let mut bytes = vec![0; 512 * 8 + archive.len()];
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes[446 + 16 + 4] = 0x83;
    bytes[446 + 16 + 8] = 8;
    bytes[446 + 16 + 12..446 + 32].copy_from_slice(&(archive.len() as u32 / 512).to_le_bytes());
    bytes[512 * 8..].copy_from_slice(&archive);
    fs::write(&disk, bytes).unwrap();
    stdout(&["pack", "--quiet", "--partition", "2", &disk, &image]);
    let differences = run(&["diff", "--ignore", "mtime", &root, &image]);
    assert_eq!(differences.stdout, b"", "{}", String::from_utf8_lossy(&differences.stdout));
    let listed = format!("2 ({} bytes at byte 4096)", archive.len());
    let none = scratch.path("none");
    fails(&["pack", &disk, &none], 2, &format!("this is a disk; choose a partition with --partition: {listed}"));
    fails(&["pack", "--partition", "1", &disk, &none], 1, &format!("--partition 1: the disk has {listed}"));
    fails(&["pack", "--partition", "2", &disk, &disk, "-o", &none], 2, "--partition: of several sources");
    fails(&["pack", "--partition", "0", &disk, &none], 2, "expected the number of a partition, from 1, or its label");
}

#[test]
fn operands_are_sources_and_an_image() {
    let scratch = Scratch::new();
    let (root, image, more) = (tree(&scratch), scratch.path("image"), scratch.path("more"));
    pack(&[&root, &image]);
    fs::create_dir(&more).unwrap();
    fs::write(format!("{more}/added"), "x").unwrap();
    let (all, none) = (scratch.path("all"), scratch.path("none"));
    stdout(&["pack", &more, &image, "--at", "/sub/dir/", &more, "-o", &all]);
    assert_eq!(stdout(&["cat", &all, "added", "sub/dir/added"]), b"xx");
    fs::create_dir_all(format!("{root}/sub/dir")).unwrap();
    ["added", "sub/dir/added"].iter().for_each(|name| fs::write(format!("{root}/{name}"), "x").unwrap());
    let differences = run(&["diff", "--ignore", "mtime", &all, &root]);
    assert_eq!(differences.stdout, b"", "{}", String::from_utf8_lossy(&differences.stdout));
    for (args, words) in [
        (&["pack", &root][..], "name the image to make, too: SRC IMAGE"),
        (&["pack", &root, &more, &image], "several sources need -o IMAGE"),
        (&["pack", &root, "--from", "nothing", &none], "use one of dir"),
        (&["pack", "-", "-", "-o", &none], "standard input can be one source only"),
        (&["pack", &image, "--force", &image], "the output cannot also be the source"),
    ] {
        fails(args, 2, words);
    }
    fails(&["pack", "--from", "erofs", &more, &none], 1, "more");
}

/// Programs may assume that a file ends behind the last extent that has a place: fsck.erofs 1.9.4 does.
#[test]
fn a_file_that_ends_in_a_hole_has_an_extent_at_its_end() {
    let scratch = Scratch::new();
    let (root, image, out) = (scratch.path("root"), scratch.path("image"), scratch.path("out"));
    fs::create_dir(&root).unwrap();
    let file = fs::File::create(format!("{root}/file")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &text(1, 1_000_000), 0).unwrap();
    file.set_len((4 << 20) + 100).unwrap();
    stdout(&["pack", "-q", "--kernel", "6.15", &root, &image]);
    let opened = kiln_read::Image::open_path(image.as_ref(), &[], &kiln_read::ImageOptions::default()).unwrap();
    let inode = opened.resolve(b"/file", kiln_read::FollowLast::Keep).unwrap();
    let hole = opened.seek(&inode, 1_100_000, kiln_read::SeekWhat::Hole).unwrap();
    let data = opened.seek(&inode, 1_100_000, kiln_read::SeekWhat::Data).unwrap();
    assert_eq!((hole, data), (Some(1_100_000), Some(4 << 20)));
    stdout(&["diff", &image, &root]);
    match Command::new("fsck.erofs").args([&format!("--extract={out}"), &image]).output() {
        Ok(said) => {
            assert!(said.status.success(), "{said:?}");
            assert!(fs::read(format!("{out}/file")).unwrap() == fs::read(format!("{root}/file")).unwrap());
        }
        Err(_) => without("fsck.erofs"),
    }
}
