//! Compares two directories completely: types, modes, owners, links, sizes, times, devices,
//! targets, attributes, contents. Prints the differences, and exits with 1 if there are any.

use kiln_tests::snapshot::{diff, of_dir};
use std::path::Path;
use std::process::ExitCode;

/// Maximum number of differences printed.
const SHOWN_MAX: usize = 50;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [expected, actual] = &arguments[..] else {
        eprintln!("usage: compare-trees EXPECTED ACTUAL");
        return ExitCode::from(2);
    };
    let snapshots = of_dir(Path::new(expected)).and_then(|a| Ok((a, of_dir(Path::new(actual))?)));
    let (expected, actual) = match snapshots {
        Ok(snapshots) => snapshots,
        Err(error) => {
            eprintln!("compare-trees: {error}");
            return ExitCode::from(2);
        }
    };
    let differences = diff(&expected, &actual);
    for line in differences.iter().take(SHOWN_MAX) {
        println!("{line}");
    }
    println!("{} files compared, {} differences", expected.len(), differences.len());
    if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
