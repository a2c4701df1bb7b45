//! Views of trees: what is read of them is what their sources have.

use kiln_builder::{Control, Threads};
use kiln_read::{Image, ImageOptions};
use kiln_tests::temp::TempDir;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;

use kiln_source::{ScanOptions, SourceOptions};

/// Opens a view of an archive or a directory.
fn view(path: &Path) -> Image {
    let stop = AtomicBool::new(false);
    let source = kiln_source::open(path, &SourceOptions::default()).unwrap();
    let scan = source.scan(&ScanOptions::new(&stop)).unwrap();
    let control = Control { stop: &stop, progress: &|_| {} };
    let view = kiln_view::view(scan.tree, Threads::ONE, &control).unwrap();
    view.into_sources().open(&ImageOptions::default()).unwrap()
}

/// Makes a directory with files of many lengths, one of them with two names, an empty one and a sparse one.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("dir/deep")).unwrap();
    for (idx, len) in [0, 1, 511, 4096, 4097, 100_000, 3_000_001].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 7 + idx) / 5) as u8).collect();
        fs::write(root.join(format!("dir/{len}")), bytes).unwrap();
    }
    fs::hard_link(root.join("dir/4097"), root.join("dir/deep/linked")).unwrap();
    let mut sparse = File::create(root.join("sparse")).unwrap();
    std::io::Write::write_all(&mut sparse, b"front").unwrap();
    sparse.set_len(1 << 20).unwrap();
    std::os::unix::fs::symlink("dir/1", root.join("link")).unwrap();
}

/// Compares all files of a view with those of a directory, in pieces and from the middle, by several threads.
fn compare(image: &Image, root: &Path) {
    let mut files = Vec::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match fs::symlink_metadata(&path).unwrap().file_type() {
                kind if kind.is_dir() => dirs.push(path),
                kind if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    assert!(files.len() > 8);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for path in &files {
                    let expected = fs::read(path).unwrap();
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                    let mut file = image.open_file(name).unwrap();
                    let mut found = Vec::new();
                    file.read_to_end(&mut found).unwrap();
                    assert!(found == expected, "{name}");
                    let middle = expected.len() / 3;
                    file.seek(SeekFrom::Start(middle as u64)).unwrap();
                    let mut part = vec![0; (expected.len() - middle).min(777)];
                    file.read_exact(&mut part).unwrap();
                    assert!(part == expected[middle..middle + part.len()], "{name}");
                }
            });
        }
    });
}

#[test]
fn archives_and_directories_are_read_as_images() {
    let dir = TempDir::new("view").unwrap();
    let root = dir.join("root");
    make_tree(&root);
    compare(&view(&root), &root);
    for (program, args) in [
        ("tar", &["-czf", "../a.tar.gz", "."][..]),
        ("tar", &["-cf", "../a.tar", "--sparse", "."]),
        ("zip", &["-qry", "../a.zip", "."]),
        ("mksquashfs", &[".", "../a.squashfs", "-quiet", "-no-progress"]),
    ] {
        let made = Command::new(program).args(args).current_dir(&root).output();
        let Ok(made) = made else {
            kiln_tests::without(program);
            continue;
        };
        assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
        let name = args.iter().find_map(|arg| arg.strip_prefix("../")).unwrap();
        compare(&view(&dir.join(name)), &root);
    }
}

#[test]
fn a_tree_without_data_is_an_image_without_it() {
    let dir = TempDir::new("view").unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    let image = view(dir.path());
    let mut found = Vec::new();
    image.open_file("empty").unwrap().read_to_end(&mut found).unwrap();
    assert!(found.is_empty());
}
