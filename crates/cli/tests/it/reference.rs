//! `kiln pack --reference`: images that refer to archives and other images.

use crate::common::{Scratch, fails, json, run, skip, stderr, stdout, text};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Makes a tree `src`, and `src.tar`, an archive of it.
fn place() -> Scratch {
    let scratch = Scratch::new();
    let src = scratch.path("src");
    fs::create_dir_all(format!("{src}/dir")).unwrap();
    fs::write(format!("{src}/dir/text"), text(1, 300_000)).unwrap();
    fs::write(format!("{src}/small"), "small").unwrap();
    fs::write(format!("{src}/empty"), "").unwrap();
    fs::hard_link(format!("{src}/small"), format!("{src}/dir/hard")).unwrap();
    let args = ["--format=posix", "--numeric-owner", "-C", &src, "-cf", &scratch.path("src.tar"), "."];
    assert!(Command::new("tar").args(args).status().unwrap().success());
    scratch
}

/// Checks that the image with these devices has the tree at `expected`, for us and for the kernel.
fn holds(scratch: &Scratch, expected: &str, image: &str, devices: &[&str]) {
    let named = |option| devices.iter().flat_map(|device| [option, *device]).collect::<Vec<_>>();
    stdout(&[&["check"], &named("--device")[..], &[image]].concat());
    stdout(&[&["diff"], &named("--device-b")[..], &[expected, image]].concat());
    let dir = scratch.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let mounted = run(&[&["mount", "--via=kernel", "--quiet"], &named("--device")[..], &[image, &dir]].concat());
    if !mounted.status.success() {
        return skip("the kernel does not mount EROFS for us");
    }
    let diff = run(&["diff", expected, &dir]);
    stdout(&["umount", &dir]);
    assert_eq!(diff.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&diff.stdout), stderr(&diff));
}

fn info(image: &str) -> Value {
    json(&stdout(&["info", "--json", image]))
}

#[test]
fn archives_are_devices() {
    let scratch = place();
    let [src, tar, image] = ["src", "src.tar", "image"].map(|name| scratch.path(name));
    let told = json(&stdout(&["pack", "--quiet", "--json", "--reference", &tar, &image]));
    assert_eq!((&told["placed_files"], &told["placed_bytes"]), (&2.into(), &300_005.into()));
    assert_eq!((&told["data_bytes"], &told["block_size"]), (&0.into(), &512.into()));
    assert_eq!(told["oldest_kernel_because"], "blocks smaller than 4096 bytes");
    assert_eq!((&info(&image)["extra_devices"], &info(&image)["block_size"]), (&1.into(), &512.into()));
    holds(&scratch, &src, &image, &[&tar]);
    fails(&["cat", &image, "small"], 1, "extra device");
    // A preset that compresses does not affect data that is not stored.
    let index = fs::read(&image).unwrap();
    stdout(&["pack", "--quiet", "--force", "--reference", "--layout=inline-data=off", "-z", "zstd", &tar, &image]);
    holds(&scratch, &src, &image, &[&tar]);
    let explained = stdout(&["pack", "--quiet", "--force", "--explain", "--reference", &tar, &image]);
    let explained = String::from_utf8(explained).unwrap();
    assert!(explained.contains("dir/text: on an extra device, in chunks of 512.0 KiB"), "{explained}");
    assert!(fs::read(&image).unwrap() == index);
    // Files from a source above are copied.
    let over = scratch.path("over");
    fs::create_dir_all(format!("{over}/dir")).unwrap();
    fs::write(format!("{over}/dir/more"), text(2, 5000)).unwrap();
    fs::write(format!("{over}/small"), "other").unwrap();
    let copy = scratch.path("copy");
    stdout(&["pack", "--quiet", &tar, &over, "-o", &copy]);
    stdout(&["pack", "--quiet", "--force", "--reference", &tar, &over, "-o", &image]);
    holds(&scratch, &copy, &image, &[&tar]);
    // Chunks on a device of their own come last.
    let blob = scratch.path("blob");
    let args = ["--layout=chunk-size=4K", "--blob-device", &blob, "--force", "--reference", &tar, &over, "-o", &image];
    stdout(&[&["pack", "--quiet", "--preset=plain"], &args[..]].concat());
    holds(&scratch, &copy, &image, &[&tar, &blob]);
    fails(
        &["pack", "--reference", "--block-size=4K", &tar, &scratch.path("no")],
        1,
        "blocks of 4096 bytes cannot refer",
    );
}

#[test]
fn images_are_devices() {
    let scratch = place();
    let [src, over, copy, image] = ["src", "over", "copy", "image"].map(|name| scratch.path(name));
    fs::create_dir_all(format!("{over}/dir")).unwrap();
    fs::write(format!("{over}/dir/more"), text(2, 70_000)).unwrap();
    fs::write(format!("{over}/small"), "other").unwrap();
    let [lower, upper, packed] = ["lower", "upper", "packed"].map(|name| scratch.path(name));
    for (dir, image) in [(&src, &lower), (&over, &upper)] {
        stdout(&["pack", "--quiet", "-z", "none", "--layout=inline-data=off", dir, image]);
    }
    stdout(&["pack", "--quiet", "-z", "lz4", &src, &packed]);
    stdout(&["pack", "--quiet", &lower, &upper, "-o", &copy]);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--reference", &lower, &upper, "-o", &image]));
    // The lower small file still exists under its other name.
    assert_eq!(
        (&told["placed_files"], &told["placed_bytes"], &told["data_bytes"]),
        (&4.into(), &370_010.into(), &0.into())
    );
    assert_eq!((&info(&image)["extra_devices"], &info(&image)["block_size"]), (&2.into(), &4096.into()));
    holds(&scratch, &copy, &image, &[&lower, &upper]);
    // Below a separate directory.
    stdout(&["pack", "--quiet", "--force", &lower, "--at", "opt", &upper, "-o", &copy]);
    stdout(&["pack", "--quiet", "--force", "--reference", &lower, "--at", "opt", &upper, "-o", &image]);
    holds(&scratch, &copy, &image, &[&lower, &upper]);
    // A file that cannot be referred to ends the build, or is left out.
    let args = ["--reference", &packed, "-o", &image];
    let words = "dir/text: stored compressed in";
    fails(&[&["pack", "--force"], &args[..]].concat(), 1, words);
    fails(&[&["pack", "--force", "--keep-going"], &args[..]].concat(), 3, words);
    assert_eq!(run(&["cat", &image, "dir/text"]).status.code(), Some(1));
}

#[test]
fn other_sources_are_refused() {
    let scratch = place();
    let [src, tar, image] = ["src", "src.tar", "image"].map(|name| scratch.path(name));
    assert!(Command::new("gzip").args(["-k", &tar]).status().unwrap().success());
    fails(&["pack", "--reference", &src, &image], 2, "can refer to tar archives and EROFS images only");
    fails(&["pack", "--reference", &format!("{tar}.gz"), &image], 2, "cannot refer to a compressed archive");
    let packed = scratch.path("packed.erofs");
    stdout(&["pack", "--quiet", "-z", "none", "--layout=inline-data=off", &src, &packed]);
    assert!(Command::new("gzip").arg(&packed).status().unwrap().success());
    fails(
        &["pack", "--reference", &format!("{packed}.gz"), &image],
        2,
        "only if the other is a file or a block device, and not",
    );
    fails(&["pack", "--reference", "--estimate", &tar], 2, "cannot be used with");
    assert!(!fs::exists(&image).unwrap());
}
