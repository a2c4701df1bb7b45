//! Makes a small random tree, for scripts that try another build of the command on it.

use kiln_tests::generator::make_random;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let seed = |text: &std::ffi::OsString| text.to_str()?.parse().ok();
    let Some((seed, dir)) = arguments.first().and_then(seed).zip(arguments.get(1)).filter(|_| arguments.len() == 2)
    else {
        eprintln!("usage: random-tree SEED EMPTY_DIRECTORY");
        return ExitCode::from(2);
    };
    if let Err(error) = make_random(Path::new(dir), seed) {
        eprintln!("random-tree: {}: {error}", dir.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
