//! Selection of an image in a layout with several.

use std::fmt;
use std::str::FromStr;

use super::records::{Annotations, ConfigRecord, PlatformRecord};

/// Selects an image of several. The default selects the only image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageChoice {
    /// Name, tag or digest of the image, or the start of its digest.
    pub name: Option<String>,
    /// Platform of the image.
    pub platform: Option<Platform>,
    /// Platform to take of an image for several, if `platform` says nothing.
    pub preferred: Option<Platform>,
}

impl ImageChoice {
    /// Returns true if it asks for an image.
    pub fn is_given(&self) -> bool {
        self.name.is_some() || self.platform.is_some()
    }
}

/// An operating system and architecture: `OS/ARCH` or `OS/ARCH/VARIANT`, with Go's names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// Operating system, usually `linux`.
    pub os: String,
    /// Architecture: `amd64`, `arm64`, ...
    pub architecture: String,
    /// Variant of the architecture: `v7`, `v8`, ...
    pub variant: Option<String>,
}

/// Error for a text that is not a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as OS/ARCH or OS/ARCH/VARIANT, for example linux/amd64")]
pub struct PlatformError;

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match *parts {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(PlatformError),
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err(PlatformError);
        }
        Ok(Self { os: os.into(), architecture: architecture.into(), variant: variant.map(str::to_owned) })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl From<&PlatformRecord> for Platform {
    fn from(record: &PlatformRecord) -> Self {
        let PlatformRecord { os, architecture, variant, .. } = record.clone();
        Self { os, architecture, variant }
    }
}

impl From<ConfigRecord> for Platform {
    fn from(record: ConfigRecord) -> Self {
        Self { os: record.os, architecture: record.architecture, variant: record.variant }
    }
}

/// An image in a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedImage {
    /// Names and tags.
    pub names: Vec<String>,
    /// Annotations with the names, from each entry for the image. For `docker save`, annotations
    /// with the same meaning.
    pub namings: Vec<Annotations>,
    /// Digest of its manifest; for `docker save`, the path of its configuration.
    pub digest: String,
    /// Digests of the indexes of several platforms that list it, the outermost first.
    pub indexes: Vec<String>,
    /// Platform, if known.
    pub platform: Option<Platform>,
}

impl ListedImage {
    /// Creates an image from the annotations of its entries.
    pub(super) fn named(namings: Vec<Annotations>, digest: String, platform: Option<Platform>) -> Self {
        let names = namings.iter().flat_map(Annotations::values).cloned().collect();
        Self { names, namings, digest, indexes: Vec::new(), platform }
    }

    /// Adds the names of another entry for the same image.
    pub(super) fn add_names_of(&mut self, other: Self) {
        self.names.extend(other.names);
        self.namings.extend(other.namings);
    }

    /// Returns true if the image matches `choice`.
    pub fn is(&self, choice: &ImageChoice) -> bool {
        let is_named = choice.name.as_ref().is_none_or(|wanted| {
            let hex = self.digest.rsplit(':').next().unwrap_or_default();
            // Docker shows 12 digits; a shorter text is more likely a name.
            let is_front = |of: &str| wanted.len() >= 12 && of.starts_with(wanted.as_str());
            self.names.iter().any(|name| is_name(name, wanted))
                || *wanted == self.digest
                || is_front(hex)
                || is_front(&self.digest)
                || self.indexes.iter().any(|index| index == wanted)
        });
        is_named && choice.platform.as_ref().is_none_or(|wanted| self.runs_on(wanted))
    }

    /// Returns true if the image is for the platform `wanted`; without a variant, any variant
    /// matches.
    pub fn runs_on(&self, wanted: &Platform) -> bool {
        self.platform.as_ref().is_some_and(|own| {
            let has_variant = wanted.variant.is_none() || own.variant == wanted.variant;
            (&own.os, &own.architecture) == (&wanted.os, &wanted.architecture) && has_variant
        })
    }
}

/// Returns true if `wanted` refers to an image called `name`: by the whole name, without the
/// registry, or by the tag alone. The tag `latest` may be omitted.
fn is_name(name: &str, wanted: &str) -> bool {
    let tails = |name: &str| name.match_indices(['/', ':']).map(|(at, _)| at + 1).chain([0]).collect::<Vec<_>>();
    let is_tail = |wanted: &str| tails(name).into_iter().any(|at| &name[at..] == wanted);
    is_tail(wanted) || is_tail(&format!("{wanted}:latest"))
}

impl fmt::Display for ListedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = if self.names.is_empty() { String::from("without a name") } else { self.names.join(", ") };
        write!(f, "{names} ({}", self.digest)?;
        self.platform.iter().try_for_each(|platform| write!(f, ", {platform}"))?;
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_chosen_by_name_digest_and_platform() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let listed = ListedImage {
            names: vec!["docker.io/library/debian:12".into(), "localhost:5000/a/b:latest".into()],
            namings: Vec::new(),
            digest: digest.clone(),
            indexes: vec![format!("sha256:{}", "ab".repeat(32))],
            platform: Some("linux/arm64/v8".parse().unwrap()),
        };
        let chosen = |name: Option<&str>, platform: Option<&str>| {
            let platform = platform.map(|platform| platform.parse().unwrap());
            listed.is(&ImageChoice { name: name.map(str::to_owned), platform, preferred: None })
        };
        for name in [
            "docker.io/library/debian:12",
            "library/debian:12",
            "debian:12",
            "12",
            "a/b",
            "b",
            "b:latest",
            &digest,
            "0123456789ab",
            &format!("sha256:{}", "ab".repeat(32)),
        ] {
            assert!(chosen(Some(name), None), "{name}");
        }
        for name in ["debian", "ebian:12", "debian:1", "a", "0123", "5000", "sha256:"] {
            assert!(!chosen(Some(name), None), "{name}");
        }
        for (platform, is) in
            [("linux/arm64", true), ("linux/arm64/v8", true), ("linux/arm64/v9", false), ("linux/amd64", false)]
        {
            assert_eq!(chosen(None, Some(platform)), is, "{platform}");
        }
        assert!(chosen(None, None));
        for text in ["linux", "linux/", "/amd64", "a/b/c/d", ""] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }
}
