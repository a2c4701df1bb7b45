//! `kiln convert`

use crate::common::{Scratch, fails, run, stdout};
use std::fs;
use std::os::unix::fs::symlink;

fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir_all(format!("{root}/dir/empty")).unwrap();
    fs::write(format!("{root}/dir/text"), "some text ".repeat(5000)).unwrap();
    fs::write(format!("{root}/short"), "x").unwrap();
    fs::hard_link(format!("{root}/short"), format!("{root}/dir/link")).unwrap();
    symlink("dir/text", format!("{root}/symlink")).unwrap();
    root
}

#[test]
fn kinds_become_each_other() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let paths = ["a.erofs", "b.tar.zst", "c.erofs", "d.cpio.gz", "e"].map(|name| scratch.path(name));
    let mut from = &root;
    for to in &paths {
        let output = run(&["convert", from, to]);
        assert!(output.status.success(), "{from} to {to}: {}", String::from_utf8_lossy(&output.stderr));
        from = to;
    }
    // tar supports everything; cpio has no attributes and no fractions of seconds.
    assert_eq!(stdout(&["diff", &root, &paths[2]]), b"");
    let differences = run(&["diff", "--ignore", "mtime,xattrs", &root, &paths[4]]);
    assert_eq!(String::from_utf8_lossy(&differences.stdout), "");
    assert_eq!(fs::read(&paths[0]).unwrap(), fs::read(&paths[2]).unwrap(), "the same tree is the same image");
    assert_eq!(stdout(&["convert", "--to", "tar", &paths[0], "-"]), stdout(&["convert", "--to", "tar", &root, "-"]));
}

#[test]
fn the_oldest_kernel_can_be_chosen() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    stdout(&["convert", "--kernel", "5.4", "--preset", "fast", &root, &image]);
    let told = String::from_utf8(stdout(&["info", &image])).unwrap();
    assert!(told.contains("Oldest kernel: Linux 5.4"), "{told}");
    fails(&["convert", "--force", "--kernel", "5.3", &root, &image], 2, "5.3");
}

#[test]
fn misuse_is_refused() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    stdout(&["convert", &root, &image]);
    fails(&["convert", &root, &image], 1, "use --force to replace it");
    fails(&["convert", "--level", "3", &root, &scratch.path("x")], 2, "--level is for archives");
    fails(&["convert", "--to", "dir", &image, &scratch.path("x")], 2, "a directory is made by kiln extract");
    fails(&["convert", "--to", "nothing", &image, &scratch.path("x")], 2, "use tar, zip");
    fails(&["convert", "--force", &image, &image], 2, "the output cannot also be the source");
    fails(&["convert", &scratch.path("missing"), &scratch.path("x.tar")], 1, "missing");
    assert_eq!(scratch.names(), ["image", "src"]);
}
