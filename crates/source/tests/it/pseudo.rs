//! Definitions that change a tree: pseudo files of mksquashfs, and device tables.

use kiln_format::inode::FileType;
use kiln_source::manifest::{parse_device_table, read_pseudo};
use kiln_source::{ScanOptions, SourceOptions, open};
use kiln_tests::image::scan_dir;
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Record, Snapshot, assert_same, of_dir, of_tree};
use kiln_tests::{has_mksquashfs, skipped, temp::TempDir};
use kiln_tree::policy::{FileContexts, IdBase, IdPolicy, Labels, Policy, Times, TreeEdits, apply};
use kiln_tree::{NodeId, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::GOING;

/// Returns a tree with `a` of user 7 and time 100, a directory `d` with `f`, and a link.
fn some() -> Tree {
    let mut tree = MemTree::default();
    let a = tree.file(NodeId::ROOT, b"a", MemFile::whole(b"contents of a".to_vec()));
    let d = tree.dir(NodeId::ROOT, b"d");
    tree.file(d, b"f", MemFile::whole(b"f".to_vec()));
    tree.add(NodeId::ROOT, b"link", kiln_tree::Kind::Symlink(b"a".as_slice().into()));
    for id in [NodeId::ROOT, a] {
        (tree.meta(id).uid, tree.meta(id).mtime) = (7, 100);
    }
    tree.finish().unwrap()
}

fn pseudo(dir: &TempDir, text: &[u8]) -> Result<TreeEdits, String> {
    fs::write(dir.join("p"), text).unwrap();
    read_pseudo(&dir.join("p")).map_err(|error| error.to_string())
}

fn edited(edits: TreeEdits) -> Result<Snapshot, String> {
    let policy = Policy { edits: vec![edits], ..Policy::default() };
    apply(some(), &policy).map(|tree| of_tree(&tree).unwrap()).map_err(|error| error.to_string())
}

fn listing(snapshot: &Snapshot) -> Vec<String> {
    let line = |(path, record): (&Vec<u8>, &Record)| {
        let Record { file_type, permissions, uid, gid, mtime, rdev, .. } = record;
        let xattrs = record.xattrs.iter().map(|(n, v)| format!(" {}={}", n.escape_ascii(), v.escape_ascii()));
        let xattrs: String = xattrs.collect();
        let target = record.target.escape_ascii();
        let path = path.escape_ascii();
        format!("{path} {file_type:?} {permissions:o} {uid}:{gid} @{} {},{} {target}{xattrs}", mtime.0, rdev.0, rdev.1)
    };
    snapshot.iter().map(line).collect()
}

const DEFINITIONS: &[u8] = b"# a comment\n\
    dev d 755 0 root\n\
    /dev/null c 666 0 0 1 3\n\
    dev/disk B 12 660 0 6 8 1\n\
    \"dev/sp ace\" i 600 1 2 s\n\
    dev/fi\\ fo I 13 640 1 2 \\\n f\n\
    dev/sym s 0 3 4 tar get \n\
    a m 4755 8 9\n\
    a x user.k=0saGk=\n\
    a x user.k=0x6869\n\
    aa L a\n\
    d D 55 700 1 1\n\
    link m 700 5 5\n\
    dev/data R 44 640 1 1 3 2 0\n\
    #\n# START OF DATA - DO NOT MODIFY\n#\n01two..";

#[test]
fn definitions_add_and_change_files() {
    let dir = TempDir::new("pseudo").unwrap();
    let found = edited(pseudo(&dir, DEFINITIONS).unwrap()).unwrap();
    let before = of_tree(&some()).unwrap();
    let expected = [
        "a Regular 4755 8:9 @100 0,0  user.k=hi",
        "aa Regular 4755 8:9 @100 0,0  user.k=hi",
        "d Directory 700 1:1 @55 0,0 ",
        "dev Directory 755 0:0 @100 0,0 ",
        "dev/data Regular 640 1:1 @44 0,0 ",
        "dev/disk BlockDevice 660 0:6 @12 8,1 ",
        "dev/fi fo Fifo 640 1:2 @13 0,0 ",
        "dev/null CharDevice 666 0:0 @100 1,3 ",
        "dev/sp ace Socket 600 1:2 @100 0,0 ",
        "dev/sym Symlink 777 3:4 @100 0,0 tar get ",
    ];
    let changed: Snapshot = found
        .iter()
        .filter(|(path, _)| !matches!(&***path, b"" | b"d/f" | b"link"))
        .map(|(p, r)| (p.clone(), r.clone()))
        .collect();
    assert_eq!(listing(&changed), expected);
    assert_eq!(found[&b""[..]], Record { nlink: found[&b""[..]].nlink, ..before[&b""[..]].clone() });
    let link = &before[&b"link"[..]];
    assert_eq!(found[&b"link"[..]], Record { uid: 5, gid: 5, ..link.clone() }, "permissions of links mean nothing");
    assert_eq!(found[&b"d/f"[..]], before[&b"d/f"[..]]);
    let sizes = |path: &[u8]| (found[path].size, found[path].nlink);
    assert_eq!((sizes(b"a"), sizes(b"aa"), sizes(b"dev/data")), ((13, 2), (13, 2), (3, 1)));
    assert_eq!(found[&b"a"[..]].contents, before[&b"a"[..]].contents);
}

#[test]
fn definitions_come_after_owners_and_before_labels() {
    let dir = TempDir::new("pseudo").unwrap();
    let contexts = FileContexts::parse(b"/dev/null u:r:null\n", "fc").unwrap();
    let policy = Policy {
        uid: IdPolicy { base: IdBase::All(0), offset: 0 },
        times: Times::All(5, 0),
        labels: Some(Labels { contexts, mount_point: Vec::new() }),
        edits: vec![
            pseudo(&dir, b"dev d 755 1 1\n").unwrap(),
            parse_device_table(b"/dev/null c 666 2 2 1 3 - - -\n", Path::new("t")).unwrap(),
        ],
        ..Policy::default()
    };
    let found = of_tree(&apply(some(), &policy).unwrap()).unwrap();
    assert_eq!((found[&b"a"[..]].uid, found[&b"dev"[..]].uid, found[&b"dev/null"[..]].uid), (0, 1, 2));
    assert_eq!(found[&b"dev"[..]].mtime, (5, 0), "as the root, which has the time that was asked for");
    assert!(found[&b"dev/null"[..]].xattrs.contains_key(&b"security.selinux"[..]));
}

#[test]
fn files_of_this_system_are_taken_as_they_are() {
    let dir = TempDir::new("pseudo").unwrap();
    let host = dir.dir("host");
    fs::write(host.join("file"), "of the host").unwrap();
    symlink("file", host.join("link")).unwrap();
    let at = |name: &str| host.join(name).display().to_string();
    let text = format!("x l {}\ny l {}\nz h {}\n", at("file"), at("link"), at("link"));
    let edits = pseudo(&dir, text.as_bytes()).unwrap();
    let found = edited(edits.clone()).unwrap();
    let direct = of_tree(&scan_dir(&host, 1).unwrap().tree).unwrap();
    for (name, original) in [(&b"x"[..], &b"file"[..]), (b"y", b"link"), (b"z", b"file")] {
        let expected = Record { first_name: name.to_vec(), ..direct[original].clone() };
        assert_eq!(found[name], expected);
    }
    // Either the file that was named is read, or there is an error.
    fs::write(host.join("file"), "another").unwrap();
    let tree = apply(some(), &Policy { edits: vec![edits], ..Policy::default() }).unwrap();
    let error = tree.open(tree.find([&b"x"[..]]).unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("changed while"), "{error}");
}

/// Names that a source does not know must not be looked up in it.
#[test]
fn further_names_lead_to_the_contents_of_the_first() {
    let dir = TempDir::new("pseudo").unwrap();
    let root = dir.dir("root");
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("sub/file"), "contents").unwrap();
    let edits = pseudo(&dir, b"A L /sub//file\nB L A\n").unwrap();
    let tree = scan_dir(&root, 1).unwrap().tree;
    let found = of_tree(&apply(tree, &Policy { edits: vec![edits], ..Policy::default() }).unwrap()).unwrap();
    assert_eq!((found[&b"A"[..]].nlink, &*found[&b"sub/file"[..]].first_name), (3, &b"A"[..]));
}

#[test]
fn errors_name_line_field_and_value() {
    let dir = TempDir::new("pseudo").unwrap();
    let prefix = format!("{}, line 2: ", dir.join("p").display());
    for (line, error) in [
        ("b f 444 0 0 echo b", "type `f`: the file would contain the output of a command, and kiln runs no commands"),
        ("b q", "type `q`: not one of"),
        ("b d 755 0 4294967295", "gid `4294967295`: over 4294967294"),
        ("b R 1 644 0 0 1 0 0", "length and offset `1 0`: the file has 0 bytes of data"),
        ("b R 1 644 0 0 18446744073709551615 1 0", "length and offset `18446744073709551615 1`"),
        ("a c 600 0 0 1 3", "path `a`: the file exists already"),
        ("a d 600 0 0", "path `a`: the file exists already"),
        ("b m 600 0 0", "path `b`: there is no such file"),
        ("b x user.a=b", "path `b`: there is no such file"),
        ("a x a=b", "attribute `a=b`: a name starts with user."),
        ("x/y d 755 0 0", "path `x/y`: there is no directory x"),
        ("a/y d 755 0 0", "path `a/y`: a is not a directory"),
        ("../y d 755 0 0", "path `../y`: `..` has no meaning here"),
        ("b L none", "path `none`: there is no such file"),
        ("b L d", "path `b`: a hard link to d, which is a directory"),
        ("a L d", "path `a`: the file exists already"),
        ("/ c 600 0 0 1 3", "path `/`: the file exists already"),
    ] {
        let found = pseudo(&dir, format!("\n{line}\n").as_bytes()).and_then(edited).unwrap_err();
        assert!(found.starts_with(&format!("{prefix}{error}")), "{found}\n{error}");
    }
    let found = read_pseudo(&dir.join("none")).map(drop).unwrap_err().to_string();
    assert!(found.contains("No such file"));
}

const TABLE: &str = "# <name> <type> <mode> <uid> <gid> <major> <minor> <start> <inc> <count>
/dev/pts\td\t755 0 0 - - - - -
/dev/console c 622 root root 5 1 0 0 -
/dev/hda b 640 0 6 3 1 1 1 3
/dev/tty c 666 0 5 4 64 0 2 2
/dev/fifo p 600 1 1 - - - - -
/a f -1 5 5 - - - - -
|xattr cap_net_raw+ep
|xattr cap_sys_admin+i
/none F 644 0 0 - - - - -
/d r 700 9 9 - - - - -
";

#[test]
fn device_tables_make_rows_of_devices() {
    let edits = parse_device_table(TABLE.as_bytes(), Path::new("t")).unwrap();
    let found = edited(edits).unwrap();
    let shown = listing(&found);
    let devices: Vec<&str> = shown.iter().map(String::as_str).filter(|line| line.starts_with("dev")).collect();
    let expected = [
        "dev Directory 755 0:0 @100 0,0 ",
        "dev/console CharDevice 622 0:0 @100 5,1 ",
        "dev/fifo Fifo 600 1:1 @100 0,0 ",
        "dev/hda1 BlockDevice 640 0:6 @100 3,1 ",
        "dev/hda2 BlockDevice 640 0:6 @100 3,2 ",
        "dev/hda3 BlockDevice 640 0:6 @100 3,3 ",
        "dev/pts Directory 755 0:0 @100 0,0 ",
        "dev/tty0 CharDevice 666 0:5 @100 4,64 ",
        "dev/tty1 CharDevice 666 0:5 @100 4,66 ",
    ];
    assert_eq!(devices, expected);
    let (a, before) = (&found[&b"a"[..]], of_tree(&some()).unwrap());
    assert_eq!((a.permissions, a.uid, a.gid), (before[&b"a"[..]].permissions, 5, 5));
    let value = &a.xattrs[&b"security.capability"[..]];
    assert_eq!(value[..12], [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0x20, 0]);
    for path in [&b"d"[..], b"d/f"] {
        assert_eq!((found[path].permissions, found[path].uid, found[path].gid), (0o700, 9, 9));
    }
    for (line, error) in [
        ("/a f 644 0 0", "line `/a f 644 0 0`: expected 10 fields"),
        ("/a f 644 0 www - - - - -", "gid `www`: write it as a number"),
        ("/a z 644 0 0 - - - - -", "type `z`: not one of"),
        ("/a d -1 0 0 - - - - -", "mode `-1`: not an octal number"),
        ("/t c 644 0 0 - 3 - - -", "major `-`: not a decimal number"),
        ("/t c 644 0 0 1 3 0 1048576 2", "minor `1048579`: over 1048575"),
        ("/t c 644 0 0 1 3 0 0 4294967295", "count `4294967295`: more than 1048576 devices"),
        ("/t p 644 0 0 - - 0 0 2", "count `2`: only devices can have a count"),
        ("/x/t c 644 0 0 1 3 - - -", "path `x/t`: there is no directory x; define it first"),
        ("/none f 644 0 0 - - - - -", "path `none`: there is no such file"),
        ("|xattr cap_x+p", "line `|xattr`: no line of a file precedes it"),
    ] {
        let edits = parse_device_table(format!("\n\n{line}").as_bytes(), Path::new("t"));
        let found = edits.map_err(|error| error.to_string()).and_then(edited).unwrap_err();
        assert!(found.starts_with(&format!("t, line 3: {error}")), "{found}\n{error}");
    }
}

/// Sets modes, owners and times that both programs support; mksquashfs uses the current time where
/// a definition has none.
const FOR_BOTH: &str = "dev D 1000 755 0 0
dev/null C 1001 666 0 5 1 3
dev/sda B 1002 660 0 6 8 0
dev/log I 1003 600 0 0 s
dev/pipe I 1004 600 1 1 f
dev/core S 1005 777 0 0 ../proc/kcore and more
file M 1006 4711 12 13
file x user.comment=0thello\\040there
dev/again L dev/null
d M 1007 700 0 0
sp\\ ace\\\"\\\\ D 1008 711 0 0
";

#[test]
fn mksquashfs_makes_the_same_of_definitions() {
    let dir = TempDir::new("pseudo").unwrap();
    let root = dir.dir("root");
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("file"), "contents").unwrap();
    fs::write(root.join("d/f"), vec![b'y'; 200_000]).unwrap();
    for path in ["d/f", "d", "file", ""] {
        assert!(Command::new("touch").args(["-d", "@500"]).arg(root.join(path)).status().unwrap().success());
    }
    fs::write(dir.join("p"), FOR_BOTH).unwrap();
    let image = dir.join("image");
    let mut command = Command::new("mksquashfs");
    command.arg(&root).arg(&image).args(["-quiet", "-no-progress", "-pf"]).arg(dir.join("p"));
    if !has_mksquashfs() {
        return;
    }
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mount_point = dir.dir("mnt");
    let mounted =
        Command::new("mount").args(["-t", "squashfs", "-o", "ro,loop"]).arg(&image).arg(&mount_point).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return skipped("no squashfs in the kernel");
    }
    let expected = same_links_of_directories(of_dir(&mount_point).unwrap());
    let edits = read_pseudo(&dir.join("p")).unwrap();
    let tree = apply(scan_dir(&root, 1).unwrap().tree, &Policy { edits: vec![edits], ..Policy::default() }).unwrap();
    assert_same(&expected, &same_links_of_directories(of_tree(&tree).unwrap()), "mksquashfs");
    // And back: an image exported as definitions with contents is a source.
    let listed = Command::new("unsquashfs").arg("-pf").arg(dir.join("all")).arg(&image).output().unwrap();
    assert!(listed.status.success());
    let source = open(&dir.join("all"), &SourceOptions::default()).unwrap();
    let whole = source.scan(&ScanOptions::new(&GOING)).unwrap().tree;
    assert_same(&expected, &same_links_of_directories(of_tree(&whole).unwrap()), "unsquashfs");
}

/// Removes link counts of directories, which depend on the filesystem.
fn same_links_of_directories(mut snapshot: Snapshot) -> Snapshot {
    snapshot.values_mut().filter(|record| record.file_type == FileType::Directory).for_each(|record| record.nlink = 1);
    snapshot
}

#[test]
fn random_texts_do_not_panic() {
    let dir = TempDir::in_memory("pseudo").unwrap();
    let mut rng = Rng::new(5);
    for round in 0..kiln_tests::rounds("KILN_MUTATIONS", 2000, 50_000) {
        let is_table = round % 2 == 0;
        let mut text = if is_table { TABLE.as_bytes().to_vec() } else { DEFINITIONS.to_vec() };
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len() as u64) as usize;
            match rng.below(3) {
                0 => text[at] = rng.below(256) as u8,
                1 => text.truncate(at.max(1)),
                _ => text.insert(at, *rng.pick(b" \n\\\"-019/")),
            }
        }
        // Definitions of a million devices take too long.
        let is_long = is_table
            && String::from_utf8_lossy(&text)
                .split_whitespace()
                .any(|word| word.len() > 4 && word.parse::<u32>().is_ok());
        let edits = match is_table {
            true if is_long => continue,
            true => parse_device_table(&text, Path::new("t")).map_err(|error| error.to_string()),
            false => pseudo(&dir, &text),
        };
        let _ = edits.and_then(edited);
    }
}
