//! Updates of images that are in use: mounted, or being updated by another process.

use crate::common::readers::{has_tree, tree_of};
use crate::common::trees::{OLD, write};
use crate::common::{Scratch, fails, kiln, skip, stderr, stdout, text};
use crate::interrupted::older::wait_until_it_works;
use kiln_mount::fuse::ImageSources;
use kiln_tests::mnt::Mount;
use kiln_tests::snapshot::{assert_same, of_dir};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

/// Makes a tree of some files, and its image.
fn place() -> (Scratch, String, String) {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
    fs::create_dir_all(format!("{src}/dir")).unwrap();
    write(format!("{src}/large"), text(1, 500_000), OLD);
    for at in 0..40 {
        write(format!("{src}/dir/file-{at}"), text(at, 900 * at as usize), OLD);
    }
    stdout(&["pack", "--quiet", &src, &image]);
    (scratch, src, image)
}

/// Drops the clean cached pages of a file.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn a_mounted_image_keeps_its_tree() {
    let (_scratch, src, image) = place();
    let before = of_dir(src.as_ref()).unwrap();
    let path = Path::new(&image);
    let sources = ImageSources::from_paths(path, &[]);
    let mounts = [Mount::by_kernel(path), Mount::by_loop(path), Mount::by_fuse(sources)];
    let see = |what: &str| {
        for mount in &mounts {
            let Ok(mount) = mount else { continue };
            assert_same(&before, &of_dir(mount.path()).unwrap(), what);
            // The next reader reads the image again, as far as it can be dropped from the cache.
            forget(&mount.path().join("large"));
        }
        forget(path);
    };
    write(format!("{src}/large"), text(4, 600_000), OLD + 1);
    fs::remove_file(format!("{src}/dir/file-7")).unwrap();
    stdout(&["update", "--quiet", &image, &src]);
    see("after an update");
    write(format!("{src}/more"), text(5, 300_000), OLD + 2);
    stdout(&["update", "--quiet", &image, &src]);
    see("after two updates");
    stdout(&["rollback", "--quiet", "--generation", "1", &image]);
    stdout(&["update", "--quiet", &image, &src]);
    see("after a rollback and an update");
    for mount in mounts {
        if let Err(reason) = mount {
            skip(&reason);
        }
    }
    has_tree(&image, &src);
}

#[test]
fn one_updates_and_others_read() {
    let (_scratch, src, image) = place();
    let before = of_dir(src.as_ref()).unwrap();
    write(format!("{src}/big"), text(7, 48 << 20), OLD);
    let mut first = kiln();
    first.args(["update", "-z", "zstd,19", "-C", "64k", "--threads", "1", &image, &src]);
    let mut child = first.stderr(Stdio::piped()).spawn().unwrap();
    wait_until_it_works(&mut child);
    // A second update is refused at once; readers see the old tree, whatever follows the image by now.
    fails(&["update", &image, &src], 1, "another process updates it");
    fails(&["rollback", &image], 1, "another process updates it");
    assert_same(&before, &tree_of(&image, None), "while it is updated");
    assert!(child.try_wait().unwrap().is_none(), "it has ended before the others were refused");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    has_tree(&image, &src);
    assert_same(&before, &tree_of(&image, Some(0)), "generation 0");
}
