//! Storage of files that come first.

use crate::console::report::note;
use crate::console::size::{self, Human};
use crate::exit::Failure;
use kiln_builder::{HotFiles, HotMethod};
use kiln_tree::storage::DataOrder;

#[derive(clap::Args)]
pub struct HotArgs {
    /// Store files of --order for quick decoding
    #[arg(long, value_name = "lz4|none|same", requires = "order", default_value = "same")]
    hot_as: HotMethod,

    /// Let these files take up to SIZE more
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "hot_as", default_value = "64M")]
    hot_budget: u64,
}

impl HotArgs {
    /// Returns the storage of files that come first in `order`, and the budget.
    ///
    /// # Errors
    /// An order that is no list.
    pub fn choice(&self, order: &DataOrder) -> Result<(HotMethod, u64), Failure> {
        if self.hot_as != HotMethod::Same && !matches!(order, DataOrder::List(_)) {
            return Err(Failure::Usage(
                "--hot-as: --order must be a list: of a random order no file comes first".into(),
            ));
        }
        Ok((self.hot_as, self.hot_budget))
    }

    /// Notes the use of the budget.
    pub fn tell(&self, found: &HotFiles) {
        let HotFiles { nodes, extra_bytes, left } = found;
        let how = match self.hot_as {
            HotMethod::Same => return,
            HotMethod::Lz4 => "by lz4",
            HotMethod::Plain => "as they are",
        };
        let left = if *left > 0 { format!("; no budget was left for {left} files") } else { String::new() };
        let extra = Human(*extra_bytes);
        note(format_args!("hot files stored {how}: {}, which take about {extra} more{left}", nodes.len()));
    }
}
