//! Labels that distinguish the counters of one mount from those of others.
//!
//! The answer of a server has no room for them; its clients find the image and the mount in the
//! mount table.

use crate::MountError;
use crate::table::Mounted;
use std::ffi::OsStr;
use std::path::Path;

/// Labels `image` and `mount`, as written between the braces of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricLabels(String);

impl MetricLabels {
    /// Returns the labels of `image`, mounted at `mount`.
    pub fn new(image: &OsStr, mount: &Path) -> Self {
        let [image, mount] = [image, mount.as_os_str()].map(|name| escape(&name.to_string_lossy()));
        Self(format!("image=\"{image}\",mount=\"{mount}\""))
    }

    /// Returns the labels of the mount whose root is `dir`. The image is the source in the mount
    /// table.
    ///
    /// # Errors
    /// The mount table cannot be read or has no such mount.
    pub fn of_mount(dir: &Path) -> Result<Self, MountError> {
        let path = || dir.to_path_buf();
        let mounted = Mounted::at(dir).map_err(|source| MountError::Stats { path: path(), source })?;
        let mounted = mounted.ok_or_else(|| MountError::NotMounted { path: path() })?;
        Ok(Self::new(&mounted.source, &mounted.dir))
    }

    /// Returns `text`, in the text format of Prometheus, with these labels before all others.
    pub fn added_to(&self, text: &str) -> String {
        let mut labelled = String::with_capacity(text.len() * 2);
        for line in text.lines() {
            match line.find(['{', ' ']) {
                Some(end) if !line.starts_with('#') => {
                    let (name, rest) = line.split_at(end);
                    let (separator, rest) = rest.strip_prefix('{').map_or(("}", rest), |labels| (",", labels));
                    labelled.extend([name, "{", &self.0, separator, rest]);
                }
                _ => labelled.push_str(line),
            }
            labelled.push('\n');
        }
        labelled
    }
}

/// Returns a label value with the escapes of the text format.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_samples_get_them() {
        let labels = MetricLabels::new(OsStr::new("a \"b\"\\"), Path::new("/x\ny,z"));
        let text = "# HELP n A b.\n# TYPE n counter\nn 1\nm{le=\"4\"} 2\n";
        let expected = r#"# HELP n A b.
# TYPE n counter
n{image="a \"b\"\\",mount="/x\ny,z"} 1
m{image="a \"b\"\\",mount="/x\ny,z",le="4"} 2
"#;
        assert_eq!(labels.added_to(text), expected);
    }
}
