//! Versions of composefs's rules, and algorithms, by their names.

use kilnfs::composefs::image::{ImageSummary, Version};
use kilnfs::digest::Algorithm;

/// Parses the value of `--min-version` and `--max-version`.
pub fn parse_version(text: &str) -> Result<Version, &'static str> {
    match text {
        "0" => Ok(Version::V0),
        "1" => Ok(Version::V1),
        _ => Err("use 0 or 1"),
    }
}

/// Parses the value of `--digest-algorithm`.
pub fn parse_algorithm(text: &str) -> Result<Algorithm, &'static str> {
    text.parse().map_err(|_| "use sha256 or sha512")
}

/// Returns an image's id, with all that it depends on beside the tree: `v1 fsverity-sha256-12 HEX`.
pub fn id(image: &ImageSummary) -> String {
    let digest =
        image.digest.map_or_else(String::new, |digest| format!(" {} {digest}", digest.algorithm().fsverity_name()));
    format!("v{}{digest}", image.version as u32)
}
