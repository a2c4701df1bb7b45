//! Samples in the text format of Prometheus, limited to the forms that kiln's own server writes.

use std::collections::BTreeMap;

/// Name, labels and value of each line.
pub struct Samples<'a>(Vec<Sample<'a>>);

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
    /// The exact value, if it is a count.
    count: u64,
}

impl Sample<'_> {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| *value)
    }
}

impl<'a> Samples<'a> {
    /// Parses the samples in a text, and ignores other lines.
    pub fn parse(text: &'a str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// Returns the value of a sample without labels; 0 if it is missing.
    pub fn count(&self, name: &str) -> u64 {
        self.0.iter().find(|sample| sample.name == name).map_or(0, |sample| sample.count)
    }

    /// Returns the samples with a name by the value of a label.
    pub fn by_label(&self, name: &str, label: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter(move |s| s.name == name).filter_map(move |s| Some((s.label(label)?, s.value)))
    }

    /// Returns the sample with a name and this label.
    pub fn with_label(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        self.by_label(name, label).find(|(found, _)| *found == value).map(|(_, value)| value)
    }

    /// Returns the buckets of a histogram by their upper bounds; each counts only its own class.
    pub fn classes(&self, name: &str, only: Option<(&str, &str)>) -> BTreeMap<String, u64> {
        let is_ours =
            |s: &&Sample<'_>| s.name == name && only.is_none_or(|(label, value)| s.label(label) == Some(value));
        let mut below = 0;
        let class = |sample: &Sample<'_>| {
            let count = sample.count.saturating_sub(below);
            below = sample.count;
            Some((sample.label("le")?.to_owned(), count))
        };
        self.0.iter().filter(is_ours).filter_map(class).collect()
    }
}

/// Parses `name value` or `name{label="value",...} value`.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (key, value) = line.rsplit_once(' ')?;
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let labels = labels.strip_suffix('}')?.split(',').filter(|label| !label.is_empty());
    let label = |text| {
        let (name, value): (&str, &str) = str::split_once(text, '=')?;
        Some((name, value.strip_prefix('"')?.strip_suffix('"')?))
    };
    let labels = labels.map(label);
    Some(Sample {
        name,
        labels: labels.collect::<Option<_>>()?,
        value: value.parse().ok()?,
        count: value.parse().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_label() {
        let text = "# HELP a b\na 18446744073709551615\nb{x=\"1\"} 0.5\nb{x=\"2\",y=\"\"} 7\nc{broken} 1\nd\n\
                    h{le=\"4\"} 1\nh{le=\"+Inf\"} 3\n";
        let samples = Samples::parse(text);
        assert_eq!((samples.count("a"), samples.count("b"), samples.count("missing")), (u64::MAX, 0, 0));
        assert_eq!(samples.by_label("b", "x").collect::<Vec<_>>(), [("1", 0.5), ("2", 7.0)]);
        assert_eq!((samples.with_label("b", "x", "2"), samples.with_label("b", "x", "3")), (Some(7.0), None));
        assert_eq!(samples.classes("h", None), BTreeMap::from([("4".to_owned(), 1), ("+Inf".to_owned(), 2)]));
        assert!(samples.by_label("c", "broken").next().is_none());
    }
}
