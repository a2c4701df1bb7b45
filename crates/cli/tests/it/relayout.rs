//! `kiln relayout`: images whose stored data is moved.

use crate::common::readers::{has_tree, open};
use crate::common::trees::some_len;
use crate::common::{Scratch, fails, golden, json, number, run, stderr, stdout, text};
use kiln_read::hotlist::HotList;
use kiln_read::{ExtentKind, FollowLast, Image, Inode};
use kiln_tests::generator;
use serde_json::Value;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Makes a random tree, and files of all sizes that share text, in `src`.
fn tree(seed: u64) -> Scratch {
    let scratch = Scratch::new();
    let src = scratch.path("src");
    fs::create_dir_all(format!("{src}/random")).unwrap();
    fs::create_dir_all(format!("{src}/some/where/deep")).unwrap();
    generator::make_random(Path::new(&format!("{src}/random")), seed).unwrap();
    for at in 0..120 {
        let dir = ["", "some/", "some/where/deep/"][at % 3];
        fs::write(format!("{src}/{dir}file-{at:03}"), text(seed + at as u64 / 9, some_len(at))).unwrap();
    }
    fs::write(format!("{src}/large"), text(seed, 3_000_000)).unwrap();
    scratch
}

/// Reads of a program in that tree: ranges all over it, in an order of their own.
const LIST: &str = "#kiln-hotlist 1
0+0\t1\tsome
2000000+65536\t2\tlarge
0+100\t3\tsome/where/deep/file-062
0+0\t4\tsome/where/deep
100000+50000\t5\tfile-006
0+4096\t6\tlarge
0+9000\t7\tsome/file-001
0+1000000\t8\tsome/where/deep/file-005
199000+1000\t9\tfile-006
1999999+2\t10\tlarge
0+1000000\t11\tfile-003
0+10\t12\tsome/file-007
";

const OPTIONS: [&[&str]; 10] = [
    &["--preset", "balanced"],
    &["--preset", "plain"],
    &["--preset", "fast"],
    &["--preset", "archive", "-C", "64k"],
    &["--preset", "dataset"],
    &["--preset", "fast", "--kernel", "5.4"],
    &["--kernel", "6.15"],
    &["--kernel", "6.15", "-z", "deflate", "--fragments", "all"],
    &["--kernel", "6.17"],
    &["--fragments", "tails", "--layout=compress-dirs", "-z", "lz4"],
];

fn inode(image: &Image, path: &str) -> Inode {
    image.resolve(path.as_bytes(), FollowLast::Keep).unwrap()
}

/// Returns the stored bytes of the image that hold a range of an inode, extent by extent; data beside inodes does
/// not count.
fn places(image: &Image, inode: &Inode, range: Range<u64>) -> Vec<Range<u64>> {
    let end = range.end.min(inode.size());
    let mut places = Vec::new();
    for extent in image.extents(inode).map(Result::unwrap) {
        let (start, end) = (range.start.max(extent.la), end.min(extent.end()));
        if start >= end {
            continue;
        }
        match extent.kind {
            ExtentKind::Raw { pa, .. } => {
                places.push(pa..pa + extent.llen.next_multiple_of(image.superblock().block_bits.len()))
            }
            ExtentKind::Plain { pa, plen, inline: None, .. } | ExtentKind::Encoded { pa, plen, inline: None, .. } => {
                places.push(pa..pa + u64::from(plen));
            }
            ExtentKind::Fragment { off } => {
                let packed = image.inode(image.superblock().packed_nid.unwrap()).unwrap();
                places.extend(self::places(image, &packed, off + (start - extent.la)..off + (end - extent.la)));
            }
            _ => {}
        }
    }
    places
}

/// Checks that the data of `list` is one stretch from byte `zone.start` on, and that files that are not packed
/// follow its order. The end of the zone may contain text that is packed together with it.
fn see_hot_zone(image: &Image, list: &str, zone: Range<u64>) {
    let block_len = image.superblock().block_bits.len();
    let (mut all, mut ordered) = (Vec::new(), Vec::new());
    for entry in HotList::parse(list.as_bytes(), "list").unwrap().entries() {
        let inode = inode(image, std::str::from_utf8(&entry.path).unwrap());
        if entry.is_metadata() {
            continue;
        }
        let is_packed = image.extents(&inode).any(|extent| matches!(extent.unwrap().kind, ExtentKind::Fragment { .. }));
        for place in places(image, &inode, entry.range()) {
            if !all.contains(&place) {
                all.push(place.clone());
                ordered.extend((!is_packed).then_some(place.start));
            }
        }
    }
    assert!(ordered.is_sorted() && all.len() > 2, "{ordered:?}");
    all.sort_by_key(|place| place.start);
    let mut end = zone.start;
    for place in &all {
        assert!(place.start >= end && place.start - end < block_len, "{place:?} is not behind {end}: {all:?}");
        end = place.end;
    }
    assert!(end <= zone.end && zone.end - end < 300_000, "{zone:?} {all:?}");
}

/// Makes `new` from `old` by a command, twice, checks that all readers find the same tree, and returns the report of
/// the command.
fn make(scratch: &Scratch, command: &[&str], [old, new]: [&str; 2]) -> Value {
    let (new, again) = (scratch.path(new), scratch.path("again.erofs"));
    let told = json(&stdout(&[command, &["--quiet", "--json", "--force", old, &new]].concat()));
    stdout(&[command, &["--quiet", "--threads", "1", "--force", old, &again]].concat());
    assert!(fs::read(&new).unwrap() == fs::read(&again).unwrap(), "{command:?} {old}: the same bytes every time");
    has_tree(&new, old);
    told
}

#[test]
fn what_a_list_needs_is_one_stretch() {
    for (seed, options) in (0..).zip(OPTIONS) {
        let scratch = tree(seed);
        let [src, old, list] = ["src", "old.erofs", "list"].map(|name| scratch.path(name));
        fs::write(&list, LIST).unwrap();
        stdout(&[&["pack", "--quiet", &src, &old], options].concat());
        let told = make(&scratch, &["relayout", "--order", &list], [&old, "new.erofs"]);
        let [before, after] = [&old, &scratch.path("new.erofs")].map(|path| open(path, None));
        let zone = number(&told, "hot_start")..number(&told, "hot_start") + number(&told, "hot_bytes");
        assert_eq!(zone.start, before.superblock().block_bits.len(), "{options:?}: right behind the superblock");
        // The end of `large` does not fit beside its inode behind a longer index: that file is stored again, behind
        // the moved data.
        if !options.contains(&"dataset") {
            see_hot_zone(&after, LIST, zone.clone());
        }
        // An uncompressed file is one piece.
        let is_cut = !options.contains(&"plain") && !options.contains(&"dataset");
        assert!(!is_cut || zone.end < 1_500_000, "{options:?}: ranges, not whole files: {zone:?}");
        // Only data beside inodes, and data that completed the last packed pcluster, was encoded again.
        let anew = number(&told, "bytes_in") - number(&told, "reused_bytes");
        // Uncompressed files with holes are in chunks, which are stored again.
        let most = number(&told, "bytes_in") / if is_cut { 20 } else { 2 } + number(&told, "hole_bytes");
        assert!(anew < most, "{options:?}: {told}");
        // Inodes of the list are neighbours.
        let span = |image: &Image| {
            let paths =
                ["large", "some/where/deep/file-062", "file-006", "some/file-001", "file-003", "some/where/deep"];
            let nids = paths.map(|path| inode(image, path).nid.0 & (u64::MAX >> 1));
            nids.iter().max().unwrap() - nids.iter().min().unwrap()
        };
        assert!(span(&after) < span(&before), "{options:?}: {} {}", span(&after), span(&before));
        assert_eq!(before.superblock().features(), after.superblock().features(), "{options:?}");
        // Without the order of a list, it has its old size.
        let told = make(&scratch, &["relayout"], [&scratch.path("new.erofs"), "tight.erofs"]);
        let [old_len, len] = [&old, &scratch.path("tight.erofs")].map(|path| fs::metadata(path).unwrap().len());
        assert!(len <= old_len + old_len / 30, "{options:?}: {old_len} {len}: {told}");
        assert_eq!(number(&told, "hot_bytes"), 0);
    }
}

#[test]
fn images_of_mkfs_are_moved() {
    let list = "#kiln-hotlist 1\n0+0\t0\tbig\n5000+20000\t3\tbig/text\n0+9\t4\tnothing/there\n0+4096\t5\tbig/text\n";
    let names = [
        "48bit-flat",
        "48bit-zstd",
        "b1024-lz4",
        "b512",
        "chunk-4k",
        "chunk-index-16k",
        "chunk-map-64k",
        "compact",
        "deflate",
        "extended",
        "flat",
        "inline",
        "lz4-allfrag",
        "lz4-dedupe-frag-tail",
        "lz4-dedupe",
        "lz4-frag",
        "lz4-legacy",
        "lz4-tail",
        "lz4",
        "lz4hc-64k",
        "lzma-dict-1m",
        "lzma",
        "metabox-zstd",
        "metabox",
        "mz",
        "xattr-filter",
        "xattr-metabox",
        "xattr-none",
        "xattr-plain-prefix",
        "xattr-prefix",
        "xattrs-inline",
        "xattrs-shared",
        "xattrs",
        "zstd-1m-frag",
        "zstd",
    ];
    for name in names {
        let scratch = Scratch::new();
        let (old, path) = (golden(&format!("{name}.erofs")), scratch.path("list"));
        fs::write(&path, list).unwrap();
        let told = make(&scratch, &["relayout", "--order", &path], [&old, "new.erofs"]);
        make(&scratch, &["relayout"], [&old, "tight.erofs"]);
        make(&scratch, &["relayout"], [&scratch.path("new.erofs"), "tight.erofs"]);
        assert_eq!(number(&told, "bytes_in") > 0, number(&told, "files") > 0, "{name}");
    }
}

#[test]
fn what_nothing_refers_to_is_left_out() {
    let scratch = tree(5);
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    stdout(&["pack", "--quiet", "-L", "a label", &src, &old]);
    let mut bytes = fs::read(&old).unwrap();
    let len = bytes.len();
    bytes.extend(text(9, 1 << 20));
    fs::write(&old, bytes).unwrap();
    let output = run(&["relayout", &old, &new]);
    assert!(stderr(&output).contains("moved as stored: "), "{}", stderr(&output));
    let found = fs::metadata(&new).unwrap().len() as usize;
    assert!(found <= len + len / 100, "{len} {found}");
    assert_eq!(open(&new, None).superblock().volume_name, open(&old, None).superblock().volume_name);
    stdout(&["diff", &old, &new]);
}

#[test]
fn updated_images_become_tight() {
    for options in [&["--preset", "balanced"][..], &["--preset", "plain"], &["--kernel", "6.15"]] {
        let scratch = tree(9);
        let [src, image, new, fresh] =
            ["src", "image.erofs", "new.erofs", "fresh.erofs"].map(|name| scratch.path(name));
        stdout(&[&["pack", "--quiet", &src, &image], options].concat());
        for round in 0..3 {
            fs::write(format!("{src}/large"), text(100 + round, 2_500_000)).unwrap();
            fs::write(format!("{src}/file-{:03}", 3 * round), text(200 + round, 150_000)).unwrap();
            fs::remove_file(format!("{src}/some/file-{:03}", 1 + 3 * round)).unwrap();
            stdout(&["update", "--quiet", &image, &src]);
        }
        make(&scratch, &["relayout"], [&image, "new.erofs"]);
        stdout(&["diff", &src, &new]);
        stdout(&[&["pack", "--quiet", &src, &fresh], options].concat());
        let [updated, tight, fresh] = [&image, &new, &fresh].map(|path| fs::metadata(path).unwrap().len());
        // Text of several generations shares nothing.
        assert!(tight < updated && tight <= fresh + fresh / 20, "{options:?}: {updated} {tight} {fresh}");
    }
}

#[test]
fn plain_lists_are_whole_files() {
    let scratch = tree(6);
    let [src, old, new, list] = ["src", "old.erofs", "new.erofs", "list"].map(|name| scratch.path(name));
    stdout(&["pack", "--quiet", &src, &old]);
    fs::write(&list, "some/file-001\nlarge\ngone\nfile-003\n").unwrap();
    let output = run(&["relayout", "--json", "--order", &list, &old, &new]);
    assert!(stderr(&output).contains("1 paths of --order are not in the image: gone"), "{}", stderr(&output));
    assert!(stderr(&output).contains("what comes first: "), "{}", stderr(&output));
    let told = json(&output.stdout);
    let zone = number(&told, "hot_start")..number(&told, "hot_start") + number(&told, "hot_bytes");
    let image = open(&new, None);
    let hot: Vec<_> = ["some/file-001", "large", "file-003"]
        .iter()
        .flat_map(|path| places(&image, &inode(&image, path), 0..u64::MAX))
        .collect();
    assert!(hot.len() > 5 && hot.iter().all(|place| zone.start <= place.start && place.end <= zone.end), "{hot:?}");
}

#[test]
fn hot_files_are_stored_plain_within_their_budget() {
    let scratch = tree(7);
    let [src, old, new, list] = ["src", "old.erofs", "new.erofs", "list"].map(|name| scratch.path(name));
    stdout(&["pack", "--quiet", &src, &old]);
    fs::write(&list, LIST).unwrap();
    let (old_len, layout) = (fs::metadata(&old).unwrap().len(), ["relayout", "--order", &list]);
    let plain = |way: &str, budget: &str| {
        make(&scratch, &[&layout[..], &["--hot-as", way, "--hot-budget", budget]].concat(), [&old, "new.erofs"]);
        fs::metadata(&new).unwrap().len().saturating_sub(old_len)
    };
    assert!(plain("none", "10M") > 1_000_000);
    let image = open(&new, None);
    for path in ["large", "some/where/deep/file-062", "file-006"] {
        let is_plain = |kind: &ExtentKind| matches!(kind, ExtentKind::Raw { .. } | ExtentKind::Meta { .. });
        assert!(image.extents(&inode(&image, path)).all(|extent| is_plain(&extent.unwrap().kind)), "{path}");
    }
    // `large` does not fit, but the files behind it do.
    let extra = plain("none", "400k");
    // By estimate: text shared with other files is stored again for this one.
    assert!((100_000..=700_000).contains(&extra), "{extra}");
    let image = open(&new, None);
    assert!(
        image.extents(&inode(&image, "large")).any(|extent| matches!(extent.unwrap().kind, ExtentKind::Encoded { .. }))
    );
    assert!(plain("none", "0") < 40_000);
    let extra = plain("lz4", "10M");
    let image = open(&new, None);
    let lz4 = image.extents(&inode(&image, "large")).any(|extent| {
        matches!(extent.unwrap().kind, ExtentKind::Encoded { algorithm: kiln_format::Algorithm::Lz4, .. })
    });
    assert!(lz4 && extra > 10_000, "{extra}");
    // A fresh build chooses the same files.
    let pack = |more: &[&str]| {
        let output = run(&[&["pack", "--force", "--order", &list, &src, &new], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&["check", &new]);
        stdout(&["diff", &old, &new]);
        (fs::metadata(&new).unwrap().len(), stderr(&output))
    };
    let (same, _) = pack(&[]);
    let (plain, said) = pack(&["--hot-as", "none", "--hot-budget", "10M"]);
    assert!(plain > same + 1_000_000 && said.contains("hot files stored as they are: "), "{same} {plain} {said}");
    let (some, said) = pack(&["--hot-as", "none", "--hot-budget", "400k"]);
    // By estimate: these files had parts that were stored once.
    assert!(
        some > same && some < plain - 1_000_000 && said.contains("no budget was left for "),
        "{same} {some} {said}"
    );
}

#[test]
fn builds_put_what_comes_first_in_one_stretch_too() {
    for (seed, options) in (10..).zip(OPTIONS) {
        let scratch = tree(seed);
        let [src, image, list] = ["src", "image.erofs", "list"].map(|name| scratch.path(name));
        fs::write(&list, LIST).unwrap();
        let told = json(&stdout(&[&["pack", "--quiet", "--json", "--order", &list, &src, &image], options].concat()));
        let zone = number(&told, "hot_start")..number(&told, "hot_start") + number(&told, "hot_bytes");
        has_tree(&image, &src);
        let image = open(&image, None);
        for path in HotList::parse(LIST.as_bytes(), "list").unwrap().files() {
            let found = places(&image, &inode(&image, std::str::from_utf8(path).unwrap()), 0..u64::MAX);
            // Packed ends follow in the packed inode, in the order of their files.
            let found = if options.contains(&"tails") { &found[..found.len().saturating_sub(1)] } else { &found[..] };
            assert!(
                found.iter().all(|place| zone.start <= place.start && place.end <= zone.end),
                "{options:?}: {found:?} {zone:?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let scratch = tree(8);
    let [src, old, new, list, link] = ["src", "old.erofs", "new.erofs", "list", "link"].map(|name| scratch.path(name));
    stdout(&["pack", "--quiet", &src, &old]);
    let before = fs::read(&old).unwrap();
    fs::write(&list, LIST).unwrap();
    symlink(&old, &link).unwrap();
    fails(&["relayout", &old, &old], 1, "exists already");
    fails(&["relayout", "--force", &old, &old], 2, "the output cannot also be the source");
    fails(&["relayout", "--force", &old, &link], 2, "the output cannot also be the source");
    fails(&["relayout", &golden("blobdev.erofs"), &new], 1, "1 extra devices");
    fails(&["relayout", &scratch.path("nothing"), &new], 1, "nothing");
    fails(&["relayout", &scratch.path("src/large"), &new], 1, "large");
    fails(&["relayout", "--json", &old, "-"], 2, "standard output");
    fails(&["relayout", "--order", "shuffle", &old, &new], 2, "--order shuffle");
    fails(&["relayout", "--order", &scratch.path("gone"), &old, &new], 1, "gone: cannot read");
    fails(&["relayout", "--hot-as", "none", &old, &new], 2, "--order");
    fails(&["relayout", "--hot-as", "zip", "--order", &list, &old, &new], 2, "use lz4, none or same");
    fs::write(&list, "#kiln-hotlist 1\n0+0\t1\t../x\n").unwrap();
    fails(&["relayout", "--order", &list, &old, &new], 2, "list, line 2: path `../x`");
    fs::write(&list, "#kiln-hotlist 9\n").unwrap();
    fails(&["relayout", "--order", &list, &old, &new], 2, "this kiln reads version 1");
    // If the image is cut off within its data, nothing appears.
    let mut cut = before.clone();
    cut.truncate(before.len() / 2);
    fs::write(scratch.path("cut.erofs"), cut).unwrap();
    fails(&["relayout", &scratch.path("cut.erofs"), &new], 1, "cut.erofs");
    assert!(fs::read(&old).unwrap() == before && fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!Path::new(&new).exists());
}
