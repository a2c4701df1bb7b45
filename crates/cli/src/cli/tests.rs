use super::*;
use std::collections::BTreeMap;

/// Options whose text or placeholder depends on the command, and why.
const DIFFERENT: [(&str, &str); 11] = [
    ("at", "pack puts a source there, run the image"),
    ("output", "commands write different things"),
    ("quiet", "diff prints nothing at all, as cmp(1) does"),
    ("owner", "pack stores owners, mount shows them"),
    ("uid-map", "mount reverses the map of pack"),
    ("gid-map", "mount reverses the map of pack"),
    ("verity", "a layer of oci has its hash tree behind it"),
    ("order", "relayout moves data in no random order"),
    ("dry-run", "a store has objects, pack makes an image"),
    ("wait", "preload waits for reads, umount for users"),
    ("uuid", "images and hash trees have a UUID each"),
];

/// Calls `visit` for each option of `command` and of those below it.
fn visit(command: &clap::Command, path: &str, each: &mut dyn FnMut(&str, &clap::Arg)) {
    command.get_arguments().filter(|arg| !arg.is_hide_set()).for_each(|arg| each(path, arg));
    for sub in command.get_subcommands() {
        visit(sub, &format!("{path} {}", sub.get_name()), each);
    }
}

#[test]
fn an_option_has_one_text_over_all_commands() {
    let mut texts: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    visit(&definition(), "kiln", &mut |path, arg| {
        let (Some(name), Some(help)) = (arg.get_long(), arg.get_help()) else { return };
        let values: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
        let text = format!("<{}> {help}", values.join("> <"));
        texts.entry(name.to_owned()).or_default().entry(text).or_default().push(path.to_owned());
    });
    let different: Vec<_> = texts.iter().filter(|(_, texts)| texts.len() > 1).collect();
    let is_unknown = |(name, _): &&_| DIFFERENT.iter().all(|(known, _)| known != name);
    let unknown: Vec<_> = different.iter().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "options have several texts: {unknown:#?}");
    for (name, _) in DIFFERENT {
        assert!(different.iter().any(|(known, _)| *known == name), "--{name} has one text");
    }
}

#[test]
fn every_argument_has_a_text_of_a_line() {
    visit(&definition(), "kiln", &mut |path, arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && help.len() <= 120 && arg.get_long_help().is_none(), "{path} {arg}: {help}");
    });
}

#[test]
fn help_names_each_topic() {
    let after = definition().get_after_help().unwrap().to_string();
    let topics: Vec<_> = crate::help::topics::TOPICS.iter().map(|topic| topic.name).collect();
    assert!(after.contains(&topics.join(", ")), "{after}");
    // Texts refer to topics that exist.
    visit(&definition(), "kiln", &mut |path, arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some((_, rest)) = help.split_once("`kiln help ") {
            let name = rest.split('`').next().unwrap();
            assert!(topics.contains(&name), "{path} {arg}: {help}");
        }
    });
}

/// Commands that read an image, and can verify it.
const VERIFYING: [&str; 15] = [
    "cat", "check", "convert", "du", "explain", "export", "extract", "info", "log", "ls", "mount", "pack", "run",
    "stat", "tree",
];

#[test]
fn every_command_that_reads_an_image_can_verify_it() {
    let (mut options, mut verifying, mut reading) = (Vec::new(), Vec::new(), Vec::new());
    for command in definition().get_subcommands() {
        let name = command.get_name();
        options.clear();
        options.extend(command.get_arguments().filter_map(|arg| arg.get_long()));
        if options.contains(&"root-hash") {
            assert!(options.contains(&"hash-tree"), "{name}");
            verifying.push(name.to_owned());
        }
        // Options of images alone.
        if options.contains(&"generation") || options.contains(&"device") {
            reading.push(name.to_owned());
        }
    }
    verifying.sort();
    assert_eq!(verifying, VERIFYING);
    // These write in place: every change makes a hash tree stale.
    reading.retain(|name| name != "rollback" && name != "repair");
    let unverified: Vec<_> = reading.iter().filter(|name| !VERIFYING.contains(&&***name)).collect();
    assert!(unverified.is_empty(), "{unverified:?} read images, and cannot verify them");
}

/// Returns the words of a line of a shell up to a pipe, a list, a redirection or a comment.
fn words(line: &str) -> Vec<OsString> {
    let (mut words, mut word, mut is_open, mut quote) = (Vec::new(), String::new(), false, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(mark), letter) if mark == letter => quote = None,
            (Some(_), letter) => word.push(letter),
            (None, '\'' | '"') => (quote, is_open) = (Some(letter), true),
            (None, '|' | '&' | ';' | '>' | ')') => break,
            (None, '#') if !is_open => break,
            (None, ' ') if is_open => {
                words.push(std::mem::take(&mut word).into());
                is_open = false;
            }
            (None, ' ') => {}
            (None, letter) => {
                word.push(letter);
                is_open = true;
            }
        }
    }
    words.extend(is_open.then(|| word.into()));
    words
}

#[test]
fn commands_in_documents_can_be_typed() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = [docs.join("guide"), docs.clone()].map(|dir| std::fs::read_dir(dir).unwrap());
    let files = files.into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|suffix| suffix == "md"));
    let (mut count, mut wrong) = (0, Vec::new());
    for path in files.chain([docs.join("../README.md")]) {
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("\n```").skip(1).step_by(2);
        for block in blocks.filter_map(|block| block.strip_prefix("sh\n").or(block.strip_prefix("console\n"))) {
            for line in block.replace("\\\n", " ").lines() {
                let line = line.trim_start_matches(['$', ' ']).trim_start_matches("sudo ");
                // `…` and `[…]` stand for more.
                if !line.starts_with("kiln ") || line.contains(['…', '[', '<']) {
                    continue;
                }
                // Help and version are "errors" that go to standard output. Files of examples do not exist here.
                let refused = parse(&words(line)).err().filter(clap::Error::use_stderr).map(|error| error.to_string());
                let refused = refused.filter(|error| !error.contains("No such file"));
                wrong.extend(refused.map(|error| format!("{}: {line}: {error}", path.display())));
                count += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 80, "{count}");
}

#[test]
fn a_subcommand_alone_is_defined_as_among_all() {
    let mut all = definition();
    for (name, _) in STARTED_OFTEN {
        let help = |command: &mut clap::Command| command.find_subcommand_mut(name).unwrap().render_help().to_string();
        let mut alone = definition_with(OsStr::new(name)).unwrap();
        assert_eq!(help(&mut alone), help(&mut all), "{name}");
        let ids = |command: &clap::Command| {
            let command = command.find_subcommand(name).unwrap();
            command.get_arguments().map(|arg| arg.get_id().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&alone), ids(&all), "{name}: hidden arguments, too");
    }
    assert!(definition_with(OsStr::new("pack")).is_none());
}
