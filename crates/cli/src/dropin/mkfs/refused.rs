//! Options of the original that this program knows but does not support yet. They end it before anything is written:
//! an image that differs from the request would be worse than none.

use crate::dropin::Stop;
use crate::exit::Failure;

/// An option that is refused.
struct Refused {
    name: &'static str,
    /// Explanation and alternative.
    because: &'static str,
}

const fn always(name: &'static str, because: &'static str) -> Refused {
    Refused { name, because }
}

const LOCAL_ONLY: &str = "sources are files and directories";
const RANDOM: &str = "the same input gives the same image";

const REFUSED: [Refused; 6] = [
    always("gzinfo", "no index of a compressed archive is written"),
    always("incremental", "images are made from scratch"),
    always("oci", LOCAL_ONLY),
    always("random-algorithms", RANDOM),
    always("random-pclusterblks", RANDOM),
    always("s3", LOCAL_ONLY),
];

/// Fails if `name` is one of these options.
pub fn check(name: &str) -> Result<(), Stop> {
    match REFUSED.iter().find(|option| option.name == name) {
        Some(option) => Err(not_yet(&format!("--{name}"), option.because)),
        None => Ok(()),
    }
}

/// Returns the error for an option that is not supported yet.
pub fn not_yet(option: &str, because: &str) -> Stop {
    Stop::Failed(Failure::Usage(format!("{option}: not yet supported: {because}")))
}
