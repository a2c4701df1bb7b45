//! Options of the original that this program knows and cannot do yet. They end it before anything is written: an image
//! that is not what was asked for would be worse than none.

use crate::dropin::Stop;
use crate::exit::Failure;
use std::ffi::OsString;

/// An option that is refused, unless its value asks for what is done anyway.
struct Refused {
    name: &'static str,
    unless: &'static [&'static str],
    /// What is done instead.
    because: &'static str,
}

const fn always(name: &'static str, because: &'static str) -> Refused {
    Refused { name, unless: &[], because }
}

const fn unless(name: &'static str, unless: &'static [&'static str], because: &'static str) -> Refused {
    Refused { name, unless, because }
}

const DIRECTORIES_ONLY: &str = "the source is a directory";
const RANDOM: &str = "the same input gives the same image";

const REFUSED: [Refused; 12] = [
    unless("clean", &["", "data"], "all data is written"),
    always("gzinfo", DIRECTORIES_ONLY),
    always("gzip", DIRECTORIES_ONLY),
    always("incremental", "images are made from scratch"),
    always("oci", DIRECTORIES_ONLY),
    always("random-algorithms", RANDOM),
    always("random-pclusterblks", RANDOM),
    always("s3", DIRECTORIES_ONLY),
    always("tar", DIRECTORIES_ONLY),
    always("ungzip", DIRECTORIES_ONLY),
    always("unlzma", DIRECTORIES_ONLY),
    always("unxz", DIRECTORIES_ONLY),
];

/// Whether `name` may be ignored with this value, or must be refused. `None`: it is none of these options.
pub fn check(name: &str, value: Option<&OsString>) -> Option<Result<(), Stop>> {
    let option = REFUSED.iter().find(|option| option.name == name)?;
    let text = value.map_or("", |value| value.to_str().unwrap_or("?"));
    Some(match option.unless.contains(&text) {
        true => Ok(()),
        false => Err(not_yet(&dashed(name), option.because)),
    })
}

/// The end because of an option that is not possible yet.
pub fn not_yet(option: &str, because: &str) -> Stop {
    Stop::Failed(Failure::Usage(format!("{option}: not yet supported: {because}")))
}

fn dashed(name: &str) -> String {
    if name.len() == 1 { format!("-{name}") } else { format!("--{name}") }
}
