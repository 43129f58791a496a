//! `autotune completions`: what shells and `man` know of the command line.

use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use super::{Failed, exit, print};
use crate::cli::{Cli, Shell};

pub(super) fn completions(shell: Shell) -> Result<u8, Failed> {
    let mut text = Vec::new();
    let mut command = visible();
    match shell {
        Shell::Bash => generate(Bash, &mut command, "autotune", &mut text),
        Shell::Zsh => generate(Zsh, &mut command, "autotune", &mut text),
        Shell::Fish => generate(Fish, &mut command, "autotune", &mut text),
        Shell::Man => {
            man_page(command, &mut text)
                .map_err(|e| Failed::own(format!("error: failed to write the man page: {e}")))?;
        }
    }
    print(&String::from_utf8_lossy(&text))?;
    Ok(exit::FOUND)
}

/// The command line without hidden subcommands. clap cannot remove one, so the command is built anew.
fn visible() -> clap::Command {
    let whole = Cli::command();
    let about = whole.get_about().cloned().unwrap_or_default();
    clap::Command::new("autotune")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .args_conflicts_with_subcommands(true)
        .args(whole.get_arguments().cloned())
        .groups(whole.get_groups().cloned())
        .subcommands(whole.get_subcommands().filter(|part| !part.is_hide_set()).cloned())
}

/// One page for all: the main job first, then each subcommand with its options.
fn man_page(mut command: clap::Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    command.build();
    clap_mangen::Man::new(command.clone()).render(text)?;
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        let title = clap_mangen::roff::Roff::new()
            .control("SH", [format!("autotune {}", part.get_name()).to_uppercase().as_str()])
            .to_roff();
        text.extend(title.as_bytes());
        let page = clap_mangen::Man::new(part.clone());
        page.render_description_section(text)?;
        page.render_options_section(text)?;
    }
    Ok(())
}
