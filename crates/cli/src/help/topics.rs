//! Topics of `kiln help`: texts about options that a line cannot explain.

use super::render::render;

/// Text about options of one kind.
pub struct Topic {
    /// Name on the command line.
    pub name: &'static str,
    markdown: &'static str,
}

/// Defines topics of these names, from the files of their names.
macro_rules! topics {
    ($($name:literal),+) => {
        [$(Topic { name: $name, markdown: include_str!(concat!("../../help/", $name, ".md")) }),+]
    };
}

/// All topics, in the order in which they are listed.
pub static TOPICS: [Topic; 11] = topics![
    "sources",
    "filters",
    "metadata",
    "edits",
    "compression",
    "layout",
    "order",
    "reuse",
    "mounting",
    "root-hash",
    "exit-codes"
];

/// Returns the topic with this name.
pub fn find(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

impl Topic {
    /// Returns the title.
    pub fn title(&self) -> &'static str {
        self.markdown.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    /// Returns the title without the name of the topic, for lists.
    pub fn summary(&self) -> &'static str {
        self.title().split_once(": ").map_or(self.title(), |(_, summary)| summary)
    }

    /// Returns the text as a terminal shows it.
    pub fn text(&self) -> String {
        render(self.markdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_have_titles_and_fit_a_terminal() {
        for topic in &TOPICS {
            assert!(topic.markdown.starts_with("# ") && !topic.summary().is_empty(), "{}", topic.name);
            let text = topic.text();
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}: lines end at column 80", topic.name);
        }
    }
}
