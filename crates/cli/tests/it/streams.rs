//! Archives that can be read only once: no temporary file is written for those that are stored as they come.

use crate::common::readers::has_tree;
use crate::common::{Scratch, kiln, stderr, stdout, text};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A directory that does not exist: a spool there fails.
const NOWHERE: &str = "/nonexistent/of-kiln";

/// Makes a tree that any archive can hold: files of all lengths, equal ones, links, a hole.
fn make() -> (Scratch, String) {
    let scratch = Scratch::new();
    let root = scratch.path("root");
    for (at, len) in [0, 1, 700, 5000, 70_000, 300_000, 5 << 20].into_iter().enumerate() {
        let dir = format!("{root}/d{}", at % 3);
        fs::create_dir_all(&dir).unwrap();
        fs::write(format!("{dir}/f{at}"), text(at as u64, len)).unwrap();
        // Of a stream, parts of long files are shared one by one.
        if len < 4 << 20 {
            fs::write(format!("{dir}/copy{at}"), text(at as u64, len)).unwrap();
        }
    }
    fs::hard_link(format!("{root}/d0/f3"), format!("{root}/d1/linked")).unwrap();
    symlink("d0/f3", format!("{root}/symbolic")).unwrap();
    let sparse = File::create(format!("{root}/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(&text(9, 100_000), 1 << 20).unwrap();
    (scratch, root)
}

/// Makes an archive of `names` in `root`, in this order.
fn tar(archive: &str, root: &str, names: &[&str]) {
    let made =
        Command::new("tar").args(["-C", root, "--sort=name", "--format=posix", "-Scf", archive]).args(names).status();
    assert!(made.unwrap().success());
}

/// Runs `kiln ARGS`, with an archive from a pipe.
fn piped(archive: &str, args: &[&str]) -> Output {
    let mut cat = Command::new("cat").arg(archive).stdout(Stdio::piped()).spawn().unwrap();
    let output = kiln().args(args).stdin(Stdio::from(cat.stdout.take().unwrap())).output().unwrap();
    cat.wait().unwrap();
    output
}

#[test]
fn an_archive_from_a_pipe_needs_no_temporary_file() {
    let (scratch, root) = make();
    let (archive, image, again) = (scratch.path("x.tar"), scratch.path("piped"), scratch.path("of-file"));
    // Of a stream, zeros for holes lie behind the data.
    fs::remove_file(format!("{root}/sparse")).unwrap();
    tar(&archive, &root, &["."]);
    for preset in ["plain", "balanced", "dataset", "backup"] {
        let args = ["pack", "--force", "--preset", preset, "--spool", NOWHERE, "-", &image];
        let done = piped(&archive, &args);
        assert!(done.status.success() && !stderr(&done).contains("temporary"), "{}", stderr(&done));
        has_tree(&image, &root);
        // The members are in the order of paths.
        stdout(&["pack", "--quiet", "--force", "--preset", preset, &archive, &again]);
        assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap(), "{preset}");
    }
    let packed = scratch.path("x.tar.gz");
    let gzip = Command::new("gzip").args(["-c", &archive]).stdout(File::create(&packed).unwrap()).status();
    assert!(gzip.unwrap().success());
    stdout(&["pack", "--quiet", "--force", "--spool", NOWHERE, &packed, &image]);
    has_tree(&image, &root);
    let drop_in = scratch.path("mkfs.erofs");
    symlink(env!("CARGO_BIN_EXE_kiln"), &drop_in).unwrap();
    let mut by_name = Command::new(drop_in);
    by_name.args(["--quiet", "--tar=f", &image]).env("TMPDIR", NOWHERE).stdin(File::open(&archive).unwrap());
    let done = by_name.output().unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    has_tree(&image, &root);
}

#[test]
fn what_needs_the_whole_tree_needs_a_temporary_file_and_says_so() {
    let (scratch, root) = make();
    let (archive, image, list) = (scratch.path("x.tar"), scratch.path("image"), scratch.path("list"));
    tar(&archive, &root, &["."]);
    fs::write(&list, "a\n").unwrap();
    let here = scratch.path("");
    let cases: [(&[&str], &str); 4] = [
        (&["--exclude", "*.none"], "a filter"),
        (&["--order", &list], "an order"),
        (&["--set-xattr", "user.a=b"], "attributes"),
        (&["--at", "below", "-"], "another order"),
    ];
    for (options, reason) in cases {
        let source = if options[0] == "--at" { &[][..] } else { &["-"] };
        let args = [&["pack", "--force", "--spool", &here], options, source, &[&image[..]]].concat();
        let done = piped(&archive, &args);
        let said = stderr(&done);
        assert!(done.status.success(), "{options:?}: {said}");
        assert!(
            options[0] == "--at" || said.contains("temporary file") && said.contains(reason),
            "{options:?}: {said}"
        );
        let args = [&["pack", "--force", "--spool", NOWHERE], options, source, &[&image[..]]].concat();
        let refused = piped(&archive, &args);
        assert!(!refused.status.success() && stderr(&refused).contains(NOWHERE), "{options:?}: {}", stderr(&refused));
    }
}

#[test]
fn images_of_containers_are_recognised_in_a_stream_or_refused() {
    let scratch = Scratch::new();
    let root = scratch.path("saved");
    fs::create_dir(&root).unwrap();
    let member = |name: &str| format!("{root}/{name}");
    fs::create_dir(member("files")).unwrap();
    fs::write(member("files/inside"), "text").unwrap();
    // More than kiln looks at to tell what an archive is.
    fs::write(member("files/long"), text(1, 200_000)).unwrap();
    tar(&member("layer.tar"), &member("files"), &["inside"]);
    let layer = fs::read(member("layer.tar")).unwrap();
    let digest = sha256(&layer);
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] } });
    fs::write(member("config.json"), config.to_string()).unwrap();
    let list = json!([{ "Config": "config.json", "RepoTags": ["a:1"], "Layers": ["layer.tar"] }]);
    fs::write(member("manifest.json"), list.to_string()).unwrap();
    let (early, late) = (scratch.path("early.tar"), scratch.path("late.tar"));
    tar(&early, &root, &["manifest.json", "config.json", "layer.tar"]);
    tar(&late, &root, &["files", "config.json", "layer.tar", "manifest.json"]);
    let image = scratch.path("image");
    let done = piped(&early, &["pack", "-", &image]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(stdout(&["cat", &image, "inside"]), b"text");
    let refused = piped(&late, &["pack", "--force", "-", &image]);
    let said = stderr(&refused);
    assert!(refused.status.code() == Some(2) && said.contains("--from oci") && said.contains("--from tar"), "{said}");
    let done = piped(&late, &["pack", "--force", "--from", "oci", "-", &image]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(stdout(&["cat", &image, "inside"]), b"text");
    let done = piped(&late, &["pack", "--force", "--from", "tar", "-", &image]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(stdout(&["cat", &image, "files/inside"]), b"text");
}

fn sha256(bytes: &[u8]) -> String {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut sum.stdin.take().unwrap(), bytes).unwrap();
    String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap()[..64].to_owned()
}

#[test]
fn an_archive_that_ends_early_leaves_no_image_or_what_was_whole() {
    let (scratch, root) = make();
    fs::write(format!("{root}/zz-long"), vec![b'x'; 6 << 20]).unwrap();
    let (archive, cut, image) = (scratch.path("x.tar"), scratch.path("cut.tar"), scratch.path("image"));
    tar(&archive, &root, &["."]);
    let whole = fs::read(&archive).unwrap();
    fs::write(&cut, &whole[..whole.len() - (3 << 20)]).unwrap();
    let failed = piped(&cut, &["pack", "-", &image]);
    assert!(failed.status.code() == Some(1) && stderr(&failed).contains("bytes into a file of"), "{}", stderr(&failed));
    assert!(fs::metadata(&image).is_err());
    let kept = piped(&cut, &["pack", "--keep-going", "-", &image]);
    assert!(kept.status.code() == Some(3) && stderr(&kept).contains("zz-long"), "{}", stderr(&kept));
    fs::remove_file(format!("{root}/zz-long")).unwrap();
    stdout(&["check", &image]);
    stdout(&["diff", "--ignore", "mtime", &image, &root]);
}

/// The header of a tar member may claim any length: nothing is allocated for it.
#[test]
fn an_archive_with_a_file_of_any_length_is_refused() {
    let scratch = Scratch::new();
    let (archive, image) = (scratch.path("x.tar"), scratch.path("x.erofs"));
    let mut header = [0; 512];
    let mut field = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    field(0, b"file");
    field(100, b"0000644\x000000000\x000000000\x00");
    // 2^60 in base 256.
    field(124, &[0x80, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    field(136, b"00000000000\x00        0");
    field(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    fs::write(&archive, [&header[..], &text(1, 9 << 20)].concat()).unwrap();
    for preset in ["plain", "balanced", "dataset"] {
        let args = ["pack", "--preset", preset, "--memory", "64M"];
        let told = "the archive ends 9437184 bytes into a file of 1152921504606846976 bytes";
        for done in [
            piped(&archive, &[&args[..], &["-", &image]].concat()),
            kiln().args(args).args([&archive, &image]).output().unwrap(),
        ] {
            assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
            assert!(stderr(&done).contains(told) && !Path::new(&image).exists(), "{}", stderr(&done));
        }
    }
}
