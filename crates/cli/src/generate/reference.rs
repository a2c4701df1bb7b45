//! Reference pages in Markdown: the help of every command, and presets by kernel.

use crate::pack::preset::PresetArg;
use clap::Command;
use kiln_builder::{BuildOptions, Choices, Dedupe, Fragments, KernelFallback, Preset, kernel_rules};
use kiln_format::KernelVersion;
use kiln_format::feature::OLDEST_KERNEL;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

const NOTE: &str = "<!-- made by `kiln generate reference` -->\n";

/// Writes all pages into `dir`.
pub fn write(dir: &Path, definition: Command) -> io::Result<()> {
    fs::write(dir.join("options.md"), options(definition))?;
    fs::write(dir.join("presets.md"), presets())
}

/// Returns the page of all commands and their options.
fn options(mut command: Command) -> String {
    command.build();
    let mut page = format!("# Commands and options\n\n{NOTE}\nThe output of `--help` of each command.\n");
    add_command(&mut page, &mut command, "kiln");
    page
}

fn add_command(page: &mut String, command: &mut Command, name: &str) {
    let help = command.render_help().to_string();
    _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end());
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name} {}", sub.get_name());
        add_command(page, sub, &name);
    }
}

/// Returns the page of presets by kernel, and of all options that depend on the kernel.
fn presets() -> String {
    let mut page = format!(
        "# Presets and kernels\n\n{NOTE}\n`--kernel X.Y` makes an image for that kernel. A preset then leaves out \
         what the kernel lacks, and\nuses what newer ones have; an option that you name yourself is refused. Without \
         it, the rows for\n6.10 hold. A row holds from the kernel in its first column on, up to the next row. \
         Encoded extents\nlimit the text of a pcluster, not its length.\n"
    );
    for (name, preset) in PresetArg::layouts() {
        _ = write!(
            page,
            "\n## `{name}`\n\n\
             | from Linux | compression | largest pcluster | extents | small files packed | stored once | metadata |\n\
             |---|---|---|---|---|---|---|\n"
        );
        let mut last = String::new();
        for kernel in kernels() {
            let row = row(preset.into(), kernel);
            if row != last {
                _ = writeln!(page, "| {kernel} | {row} |");
            }
            last = row;
        }
    }
    page += "\n`backup` stores data as `balanced` does, with digests of contents.\n";
    page += "\n## Options by kernel\n\nOptions are named as in the library (`BuildOptions`).\n\n\
             | option | value | from Linux | before |\n|---|---|---|---|\n";
    for rule in kernel_rules() {
        let before = match rule.fallback {
            KernelFallback::Refused | KernelFallback::RefusedInUse => "refused",
            KernelFallback::Instead(instead) => instead,
            _ => "",
        };
        let (option, value, since) = (rule.option, rule.value, rule.feature.since());
        _ = writeln!(page, "| `{option}` | {value} | {since} | {before} |");
    }
    page
}

/// Returns the kernels that can do something which older ones cannot, in order.
fn kernels() -> BTreeSet<KernelVersion> {
    kernel_rules()
        .map(|rule| rule.feature.since())
        .filter(|since| *since > OLDEST_KERNEL)
        .chain([OLDEST_KERNEL])
        .collect()
}

/// Returns the cells of a preset for a kernel.
fn row(preset: Preset, kernel: KernelVersion) -> String {
    let choices = Choices { preset, kernel: Some(kernel), ..Choices::default() };
    let options = match choices.build_options() {
        Ok(options) => options,
        Err(error) => return format!("not possible: {error} | | | | |"),
    };
    let grants =
        |option: &str| kernel_rules().filter(|rule| rule.option == option).all(|rule| rule.feature.since() <= kernel);
    let (method, len, extents) = match options.compression.spec {
        Some(spec) => {
            let extents = if options.compression.encoded_extents { "encoded" } else { "index" };
            (format!("{},{}", spec.method.name(), spec.level), format!("{} KiB", spec.pcluster_len >> 10), extents)
        }
        None => ("none".to_owned(), String::new(), ""),
    };
    let once = match options.dedupe {
        Dedupe::Parts if grants("dedupe") => "files and parts",
        Dedupe::Parts | Dedupe::Files => "files",
        Dedupe::Off => "",
    };
    let metadata = if options.metadata.metabox.is_some() { "compressed" } else { "" };
    format!("{method} | {len} | {extents} | {} | {once} | {metadata}", packed(&options))
}

fn packed(options: &BuildOptions) -> String {
    match options.packing.fragments {
        _ if !options.packs_files() => "no".to_owned(),
        Fragments::UpTo(u64::MAX) => "all files".to_owned(),
        Fragments::UpTo(len) | Fragments::Tails(len) => format!("up to {} KiB", len >> 10),
        Fragments::Off => "no".to_owned(),
    }
}
