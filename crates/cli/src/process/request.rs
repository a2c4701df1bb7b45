//! Requests from one process of this command to another, as JSON.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// One path, or several.
pub trait PathList: Sized {
    /// Returns the paths, in order.
    fn list(&self) -> Vec<&OsStr>;

    /// Returns the value with these paths; `None` if their number is wrong.
    fn of(list: Vec<OsString>) -> Option<Self>;
}

impl PathList for PathBuf {
    fn list(&self) -> Vec<&OsStr> {
        vec![self.as_os_str()]
    }

    fn of(list: Vec<OsString>) -> Option<Self> {
        let [path] = <[OsString; 1]>::try_from(list).ok()?;
        Some(path.into())
    }
}

impl PathList for Option<PathBuf> {
    fn list(&self) -> Vec<&OsStr> {
        self.iter().map(|path| path.as_os_str()).collect()
    }

    fn of(list: Vec<OsString>) -> Option<Self> {
        if list.is_empty() { Some(None) } else { PathBuf::of(list).map(Some) }
    }
}

impl PathList for Vec<PathBuf> {
    fn list(&self) -> Vec<&OsStr> {
        self.iter().map(|path| path.as_os_str()).collect()
    }

    fn of(list: Vec<OsString>) -> Option<Self> {
        Some(list.into_iter().map(PathBuf::from).collect())
    }
}

/// Paths of any bytes, for `#[serde(with)]`. They are sent as absolute paths, because the receiver works in another
/// directory.
pub mod absolute_paths {
    use super::PathList;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
    use std::ffi::OsString;

    /// Serializes the paths.
    ///
    /// # Errors
    /// An empty path, or no working directory.
    pub fn serialize<S: Serializer>(paths: &impl PathList, serializer: S) -> Result<S::Ok, S::Error> {
        let absolute = paths.list().into_iter().map(|path| Ok(std::path::absolute(path)?.into_os_string()));
        let absolute: Result<Vec<OsString>, std::io::Error> = absolute.collect();
        absolute.map_err(ser::Error::custom)?.serialize(serializer)
    }

    /// Deserializes the paths.
    ///
    /// # Errors
    /// Another number of paths.
    pub fn deserialize<'de, D: Deserializer<'de>, P: PathList>(deserializer: D) -> Result<P, D::Error> {
        let list = Vec::<OsString>::deserialize(deserializer)?;
        P::of(list).ok_or_else(|| de::Error::custom("another number of paths"))
    }
}

/// Lists of values that are written as users write them, for `#[serde(with)]`.
pub mod texts {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use std::fmt::Display;
    use std::str::FromStr;

    /// Serializes the values.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(values: &[impl Display], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    /// Deserializes the values.
    ///
    /// # Errors
    /// A text that is no such value.
    pub fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
    }
}
