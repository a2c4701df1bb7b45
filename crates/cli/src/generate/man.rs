//! Man pages: what the definition of the command says, and what only a manual has room for.

use crate::dropin;
use crate::help::topics::{TOPICS, Topic};
use clap::Command;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Description of all documents of `--json`.
const JSON: &str = include_str!("../../JSON.md");

/// Write all pages of the command into `dir`.
pub fn write(dir: &Path, definition: Command) -> io::Result<()> {
    let mut command = definition.disable_help_subcommand(true);
    command.build();
    fs::write(dir.join("kiln.1"), page(&command, "kiln")?)?;
    for (name, sub) in subcommands(&command, "") {
        fs::write(dir.join(format!("kiln-{name}.1")), page(sub, &name)?)?;
    }
    for program in &dropin::PROGRAMS {
        fs::write(dir.join(format!("{}.1", program.name)), dropin_page(program))?;
    }
    for topic in &TOPICS {
        fs::write(dir.join(format!("kiln-{}.7", topic.name)), topic_page(topic))?;
    }
    fs::write(dir.join("kiln-json.5"), json_page())
}

/// All commands below one, with their names as pages have them: `oci`, `oci-pack`.
fn subcommands<'a>(command: &'a Command, prefix: &str) -> Vec<(String, &'a Command)> {
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let with_own = |sub: &'a Command| {
        let name = format!("{prefix}{}", sub.get_name());
        let below = subcommands(sub, &format!("{name}-"));
        [(name, sub)].into_iter().chain(below).collect::<Vec<_>>()
    };
    subs.flat_map(with_own).collect()
}

/// The page of a command that is built, which is called `name`.
fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    // The rest of what stands behind the options in `--help`: exit codes, which have a section of their own.
    let examples = examples.split_once("Example").and_then(|(_, lines)| lines.split_once('\n')).map(|(_, lines)| lines);
    let man = Man::new(command.clone()).manual("kiln").source(concat!("kiln ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut text = String::new();
    definitions(&mut text, "EXIT STATUS", exit_status(name));
    definitions(&mut text, "ENVIRONMENT", environment(name));
    definitions(&mut text, "FILES", files(name));
    if let Some(lines) = examples {
        section(&mut text, "EXAMPLES");
        let lines: Vec<_> = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        verbatim(&mut text, &lines.join("\n"));
    }
    see_also(&mut text, &see(command, name));
    page.extend(text.into_bytes());
    Ok(page)
}

/// Codes and what they mean.
fn exit_status(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "check" => &[
            ("0", "nothing is wrong"),
            ("4", "errors were found, or the file is no image"),
            ("8", "the check itself failed"),
            ("16", "wrong usage"),
        ],
        "run" => &[
            ("N", "as COMMAND"),
            ("128 + n", "COMMAND was ended by signal n"),
            ("126", "COMMAND cannot be run"),
            ("127", "COMMAND was not found"),
            ("1", "failed; standard error tells why"),
            ("2", "wrong usage"),
        ],
        "record" => &[
            ("N", "as COMMAND; LIST is written"),
            ("128 + n", "COMMAND was ended by signal n; LIST is written"),
            ("126", "COMMAND cannot be run"),
            ("127", "COMMAND was not found"),
            ("1", "failed; standard error tells why"),
            ("2", "wrong usage"),
        ],
        "patch-apply" => &[
            ("0", "done; with --status: OLD is the new image"),
            ("1", "failed; standard error tells why"),
            ("2", "wrong usage"),
            ("10", "with --status: OLD is the old image, nothing was written"),
            ("11", "with --status: OLD is unfinished, and its journal completes it"),
            ("12", "with --status: unknown; standard error tells why"),
            ("128 + n", "ended by signal n"),
        ],
        "verity-verify" => &[
            ("0", "everything is right"),
            ("1", "nothing could be verified; standard error tells why"),
            ("2", "wrong usage"),
            ("4", "something is wrong; standard error tells where"),
            ("128 + n", "ended by signal n"),
        ],
        "hotlist-diff" => &[("0", "both lists have the same"), ("1", "they are different"), ("2", "trouble")],
        "diff" => &[
            ("0", "both trees are the same"),
            ("1", "they are different"),
            ("2", "trouble: wrong usage, or something could not be read and so was not compared"),
        ],
        _ => &[
            ("0", "done"),
            ("1", "failed; standard error tells why"),
            ("2", "wrong usage"),
            ("3", "done, but inputs were skipped, with --keep-going for example; standard error names them"),
            ("128 + n", "ended by signal n"),
        ],
    }
}

fn environment(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "pack" => &[
            ("SOURCE_DATE_EPOCH", "the time of building to record, in seconds since 1970, unless --build-time says so"),
            ("TMPDIR", "where files lie that wait to be written to a device or a stream; the default is /var/tmp"),
        ],
        "oci-pack" | "oci-convert" => &[("SOURCE_DATE_EPOCH", "the latest time in layers, in seconds since 1970")],
        "mount" | "umount" => {
            &[("PATH", "where fusermount3 is looked for, which mounts and unmounts for users who are not root")]
        }
        _ => &[],
    }
}

fn files(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "mount" => &[
            ("/dev/fuse", "the kernel's side of FUSE; a container needs it for --via fuse"),
            ("/dev/loop-control", "loop devices, where the kernel's driver insists on block devices"),
            ("/dev/log", "the system's log, to which a FUSE server in the background writes errors"),
            ("/etc/fuse.conf", "has to hold user_allow_other for users who are not root to use -o allow_other"),
        ],
        "umount" => &[("/proc/self/mountinfo", "what is mounted where: only EROFS images are unmounted")],
        _ => &[],
    }
}

/// Other pages.
fn see(command: &Command, name: &str) -> Vec<String> {
    let near: &[&str] = match name {
        "kiln" => {
            let subs = subcommands(command, "").into_iter().map(|(name, _)| format!("kiln-{name}(1)"));
            let topics = TOPICS.iter().map(|topic| format!("kiln-{}(7)", topic.name));
            return subs.chain(["kiln-json(5)".to_owned()]).chain(topics).collect();
        }
        "pack" => &["kiln-mount(1)", "kiln-check(1)", "kiln-explain(1)", "mkfs.erofs(1)"],
        "mount" => {
            &["kiln-umount(1)", "kiln-stats(1)", "kiln-preload(1)", "mount(8)", "fusermount3(1)", "erofsfuse(1)"]
        }
        "umount" => &["kiln-mount(1)", "umount(8)"],
        "stats" => &["kiln-mount(1)"],
        "run" => &["kiln-mount(1)", "kiln-doctor(1)", "namespaces(7)", "unshare(1)"],
        "record" => &["kiln-mount(1)", "kiln-pack(1)", "kiln-preload(1)", "kiln-hotlist(1)", "fanotify(7)"],
        "preload" => &["kiln-mount(1)", "kiln-record(1)", "kiln-hotlist(1)", "posix_fadvise(2)"],
        "hotlist" => &[
            "kiln-hotlist-merge(1)",
            "kiln-hotlist-show(1)",
            "kiln-hotlist-diff(1)",
            "kiln-pack(1)",
            "kiln-preload(1)",
        ],
        name if name.starts_with("hotlist-") => &["kiln-hotlist(1)", "kiln-pack(1)", "kiln-preload(1)"],
        "check" => &["kiln-diff(1)", "fsck.erofs(1)"],
        "diff" => &["kiln-check(1)", "diff(1)"],
        "export" => &["kiln-extract(1)", "tar(1)", "mksquashfs(1)"],
        "oci" => &["kiln-oci-inspect(1)", "kiln-oci-pack(1)", "kiln-oci-convert(1)", "kiln-pack(1)", "skopeo(1)"],
        name if name.starts_with("oci-") => &["kiln-oci(1)", "kiln-pack(1)", "skopeo(1)"],
        "info" | "explain" | "du" | "stat" => &["kiln-ls(1)", "dump.erofs(1)"],
        "install-names" => &["mkfs.erofs(1)", "fsck.erofs(1)", "dump.erofs(1)", "erofsfuse(1)"],
        _ => &["kiln-mount(1)", "kiln-extract(1)"],
    };
    let has_json = command.get_arguments().any(|arg| arg.get_id() == "json");
    let near = near.iter().filter(|page| !page.starts_with(&format!("kiln-{name}(")));
    let mut pages: Vec<String> = ["kiln(1)"].iter().chain(near).map(ToString::to_string).collect();
    pages.extend(has_json.then(|| "kiln-json(5)".to_owned()));
    pages
}

/// A program with a drop-in name.
fn dropin_page(program: &dropin::Program) -> String {
    let name = program.name;
    let (synopsis, options) = program.usage().split_once('\n').unwrap_or((program.usage(), ""));
    let mut text = format!(".TH \"{}\" 1 \"\" \"kiln\" \"kiln\"\n", escape(name));
    section(&mut text, "NAME");
    let _ = writeln!(text, "{} \\- {}, by kiln", escape(name), program.about);
    section(&mut text, "SYNOPSIS");
    let _ = writeln!(text, "\\fB{}\\fR {}", escape(name), escape(synopsis));
    section(&mut text, "DESCRIPTION");
    let called = match program.project {
        dropin::Project::Kiln => "This is kiln, called by the name that mount(8) looks for. It takes the options of \
                                  mount(8) and fstab(5), and passes the others to kiln-mount(1)."
            .to_owned(),
        project => format!(
            "This is kiln, called by the name of a program of {}: it takes the options of that program and answers in \
             the same lines.",
            project.name()
        ),
    };
    paragraph(&mut text, &format!("{called} kiln-install-names(1) makes the name."));
    section(&mut text, "OPTIONS");
    verbatim(&mut text, options.trim_matches('\n'));
    definitions(&mut text, "EXIT STATUS", &[("0", "done"), ("1", "failed, or wrong usage; standard error tells why")]);
    let others = dropin::PROGRAMS.iter().filter(|other| other.name != name).map(|other| format!("{}(1)", other.name));
    see_also(
        &mut text,
        &["kiln(1)".into(), "kiln-install-names(1)".into()].into_iter().chain(others).collect::<Vec<_>>(),
    );
    text
}

/// Returns the page of a topic, whose text is laid out as for a terminal.
fn topic_page(topic: &Topic) -> String {
    let name = escape(topic.name);
    let mut text = format!(".TH \"kiln\\-{name}\" 7 \"\" \"kiln\" \"kiln\"\n");
    section(&mut text, "NAME");
    let _ = writeln!(text, "kiln\\-{name} \\- {}", escape(topic.summary()));
    section(&mut text, "DESCRIPTION");
    verbatim(&mut text, topic.text().split_once("\n\n").map_or("", |(_, body)| body).trim_end());
    see_also(&mut text, &["kiln(1)".into(), "kiln-help(1)".into()]);
    text
}

/// The description of the documents as it is: a man page has no tables.
fn json_page() -> String {
    let mut text = String::from(".TH \"kiln-json\" 5 \"\" \"kiln\" \"kiln\"\n");
    section(&mut text, "NAME");
    text.push_str("kiln\\-json \\- documents that kiln prints with \\-\\-json\n");
    section(&mut text, "DESCRIPTION");
    verbatim(&mut text, JSON.split_once("\n\n").map_or(JSON, |(_, body)| body));
    see_also(&mut text, &["kiln(1)".into()]);
    text
}

fn section(text: &mut String, title: &str) {
    let _ = writeln!(text, ".SH \"{title}\"");
}

fn paragraph(text: &mut String, words: &str) {
    let _ = writeln!(text, "{}", escape(words));
}

/// Terms and what they mean; nothing where there are none.
fn definitions(text: &mut String, title: &str, list: &[(&str, &str)]) {
    if list.is_empty() {
        return;
    }
    section(text, title);
    for (term, meaning) in list {
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", escape(term), escape(meaning));
    }
}

fn verbatim(text: &mut String, lines: &str) {
    let _ = writeln!(text, ".nf\n{}\n.fi", escape(lines));
}

fn see_also(text: &mut String, pages: &[String]) {
    section(text, "SEE ALSO");
    paragraph(text, &pages.join(", "));
}

/// Text in which roff finds nothing to do: no escape, no request at the start of a line, hyphens that can be copied.
fn escape(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roff_finds_nothing_to_do() {
        assert_eq!(escape("a\\b --c\n.d 'e' `f`"), "a\\eb \\-\\-c\n\\&.d \\(aqe\\(aq \\(gaf\\(ga");
    }
}
