//! A program in C that reads the golden images by libkiln, with a sanitizer of addresses where the compiler has one.

use kiln_tests::golden;
use kiln_tests::temp::TempDir;
use kilnfs::read::{FileType, Image, ImageOptions, Inode};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles the program with `flags`, and returns its path; `None` if that is not possible.
fn compiled(dir: &TempDir, flags: &[&str]) -> Option<PathBuf> {
    let out = dir.join(&format!("program{}", flags.len()));
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libkiln.a");
    let done = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-I"])
        .arg(here().join("include"))
        .args(flags)
        .arg(here().join("tests/program.c"))
        .arg(&library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&out)
        .output()
        .ok()?;
    match done.status.success() {
        true => Some(out),
        false if flags.is_empty() => panic!("{}", String::from_utf8_lossy(&done.stderr)),
        false => None,
    }
}

fn hash(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the lines that the program prints of an image.
fn expected(image: &Image) -> String {
    let mut lines = String::new();
    let root = image.inode(image.root_nid()).unwrap();
    let contents = |inode: &Inode| match inode.file_type() {
        FileType::Regular => {
            let mut buf = vec![0; inode.size() as usize];
            assert_eq!(image.read_at(inode, &mut buf, 0).unwrap(), buf.len());
            buf
        }
        FileType::Symlink => image.read_link(inode).unwrap(),
        _ => Vec::new(),
    };
    for entry in image.walk(&root, b"/") {
        let entry = entry.unwrap();
        let sum = hash(0xcbf2_9ce4_8422_2325, &contents(&entry.inode));
        let path = String::from_utf8_lossy(&entry.path);
        writeln!(lines, "{:o} {} {sum:x} {path}", entry.inode.mode(), entry.inode.size()).unwrap();
    }
    lines
}

#[test]
fn a_program_in_c_reads_what_rust_reads() {
    if Command::new("cc").arg("--version").output().is_err() {
        return kiln_tests::skipped("no C compiler");
    }
    let dir = TempDir::new("capi").unwrap();
    let mut programs = vec![compiled(&dir, &[]).unwrap()];
    match compiled(&dir, &["-fsanitize=address"]) {
        Some(program) => programs.push(program),
        None => kiln_tests::skipped("the C compiler has no sanitizer of addresses"),
    }
    let manifest = fs::read_to_string(golden::file("MANIFEST.tsv")).unwrap();
    let mut count = 0;
    for name in manifest.lines().skip(1).map(|line| line.split('\t').next().unwrap()) {
        let path = golden::file(&format!("{name}.erofs"));
        let Ok(image) = Image::open_path(&path, &[], &ImageOptions::default()) else { continue };
        if image.require_devices().is_err() {
            continue;
        }
        let expected = expected(&image);
        for program in &programs {
            let output = Command::new(program).arg(&path).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout) == expected, "{name}");
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
    // Packing, and a batch.
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents of a file".repeat(100)).unwrap();
    for program in &programs {
        let image = dir.join("image.erofs");
        let output = Command::new(program).arg("pack").arg(&source).arg(&image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = Command::new(program).arg(&image).arg("file").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::remove_file(&image).unwrap();
        let damaged = dir.join("damaged");
        fs::write(&damaged, [0; 9000]).unwrap();
        let output = Command::new(program).arg(&damaged).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && told.contains("damaged"), "{told}");
    }
}

/// The example for Go, compiled as a user would do it: by cgo, with what pkg-config tells.
#[test]
fn the_example_in_go_is_a_filesystem() {
    for program in ["go", "pkg-config"] {
        if Command::new(program).arg("version").output().is_err() {
            return kiln_tests::without(program);
        }
    }
    let dir = TempDir::new("go").unwrap();
    let (tree, image) = (dir.join("tree"), dir.join("image.erofs"));
    fs::create_dir_all(tree.join("dir/empty")).unwrap();
    fs::write(tree.join("dir/file"), "contents of a file".repeat(1000)).unwrap();
    symlink("dir/file", tree.join("link")).unwrap();
    kilnfs::pack(&tree, &image, kilnfs::Preset::Balanced).unwrap();
    // As `make install` would lay it out below a prefix.
    fs::create_dir_all(dir.join("lib/pkgconfig")).unwrap();
    fs::create_dir(dir.join("include")).unwrap();
    fs::copy(here().join("include/kiln.h"), dir.join("include/kiln.h")).unwrap();
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libkiln.a");
    symlink(library, dir.join("lib/libkiln.a")).unwrap();
    let told = fs::read_to_string(here().join("kiln.pc.in")).unwrap();
    let prefix = dir.path().display().to_string();
    let told = told.replace("@prefix@", &prefix).replace("@version@", env!("CARGO_PKG_VERSION"));
    fs::write(dir.join("lib/pkgconfig/kiln.pc"), told).unwrap();
    let output = Command::new("go")
        .args(["test", "-count=1", "./..."])
        .current_dir(here().join("go"))
        .env("PKG_CONFIG_PATH", dir.join("lib/pkgconfig"))
        .env("CGO_LDFLAGS", "-lpthread -ldl -lm")
        .env("GOCACHE", dir.join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("IMAGE", &image)
        .env("FILE", "dir/file")
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&told));
}

/// The header declares the functions of the library, and no others.
#[test]
fn the_header_has_all_functions() {
    let header = fs::read_to_string(here().join("include/kiln.h")).unwrap();
    let mut defined = BTreeSet::new();
    for file in fs::read_dir(here().join("src")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = part.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            defined.insert(name.to_owned());
        }
    }
    let declared = header.split('(').filter_map(|part| part.split([' ', '*', '\n']).next_back());
    let declared: BTreeSet<String> =
        declared.filter(|name| name.starts_with("kiln_") && defined.contains(*name)).map(String::from).collect();
    assert_eq!(declared, defined);
    if let Ok(done) = Command::new(here().join("header.sh")).arg("--check").output()
        && Command::new("cbindgen").arg("--version").output().is_ok()
    {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}
