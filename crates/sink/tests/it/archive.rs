//! Archives hold what the image holds: other programs read them, and the result is compared with
//! the tree.

mod formats;
mod hostile;
mod losses;
mod tar;

use kiln_read::{Image, MemorySource};
use kiln_sink::archive::{Control, ExportOptions, ExportReport, Format, Loss, StreamCompression, export};
use kiln_sink::{Selection, SinkError};
use kiln_tests::generator::{self, Scale};
use kiln_tests::image;
use kiln_tests::mem::MemTree;
use kiln_tests::skipped;
use kiln_tests::snapshot::{self, Snapshot};
use kiln_tests::temp::TempDir;
use rustix::process::geteuid;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// Exports to `out`.
fn export_to(
    image: &Image,
    patterns: &[&str],
    options: &ExportOptions,
    out: &mut dyn Write,
) -> Result<ExportReport, SinkError> {
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    export(image, &Selection::of(patterns.iter().copied())?, options, &control, out)
}

/// Exports to memory.
fn exported(image: &Image, patterns: &[&str], options: &ExportOptions) -> (Vec<u8>, ExportReport) {
    let mut bytes = Vec::new();
    let report = export_to(image, patterns, options, &mut bytes).unwrap();
    (bytes, report)
}

/// Returns the kinds of losses and their counts.
fn losses(report: &ExportReport) -> Vec<(Loss, u64)> {
    report.losses.iter().map(|(loss, lost)| (*loss, lost.count)).collect()
}

/// A tree with every oddity and its image, which stay on disk until the tests end.
struct Packed {
    image: Image,
    snapshot: Snapshot,
}

/// Returns the tree that all tests share; `None` without the privileges that its devices and owners
/// need.
fn packed() -> Option<&'static Packed> {
    static PACKED: OnceLock<Option<Packed>> = OnceLock::new();
    let packed = PACKED.get_or_init(|| {
        if !geteuid().is_root() {
            return None;
        }
        let scratch = TempDir::new("export").unwrap();
        let root = scratch.dir("tree");
        generator::make(&root, 5, Scale::Small).unwrap();
        // Paths longer than a system call accepts, which only programs restore that open each
        // directory of them.
        std::fs::remove_dir_all(root.join("dirs/deep")).unwrap();
        let scan = image::scan_dir(&root, 2).unwrap();
        let choice = Some((kiln_codec::Method::Lz4, 1));
        let (bytes, _) = image::build(&scan.tree, &image::options(choice, 16384, 2)).unwrap();
        Some(Packed { image: image::open(bytes).unwrap(), snapshot: snapshot::of_dir(&root).unwrap() })
    });
    if packed.is_none() {
        skipped("devices and owners need root");
    }
    packed.as_ref()
}

/// Runs a program in `dir` with `input`, and returns its output; `None` if it is not installed.
fn program(dir: &Path, name: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(name);
    command.args(args).current_dir(dir).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(_) => {
            kiln_tests::without(name);
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program may stop reading at the end marker of the archive.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    let said: String = String::from_utf8_lossy(&output.stderr).chars().take(2000).collect();
    assert!(output.status.success(), "{name} {args:?}: {said}");
    assert!(said.lines().all(|line| line.ends_with(" blocks")), "{name} {args:?}: {said}");
    Some(output.stdout)
}

/// Returns an image of a tree in memory.
fn image_of(tree: MemTree) -> Image {
    let tree = tree.finish().unwrap();
    let (bytes, _) = image::build(&tree, &image::options(None, 4096, 1)).unwrap();
    image::open(bytes).unwrap()
}

/// Returns all formats with all compressions that they support.
fn all_options() -> Vec<ExportOptions> {
    use Format::{Cpio, Mtree, SquashfsPseudo, Tar, Zip};
    let plain = [Tar, Zip, Cpio, Mtree, SquashfsPseudo].map(ExportOptions::new);
    let compressions = [
        StreamCompression::Gzip,
        StreamCompression::Zstd,
        StreamCompression::Xz,
        StreamCompression::Bzip2,
        StreamCompression::Lz4,
    ];
    let compressed = compressions.map(|compression| ExportOptions {
        compression: Some(compression),
        level: Some(1),
        ..ExportOptions::new(Tar)
    });
    plain.into_iter().chain(compressed).collect()
}

/// Opens an image in memory.
fn open(bytes: Vec<u8>) -> Option<Image> {
    Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &Default::default()).ok()
}
