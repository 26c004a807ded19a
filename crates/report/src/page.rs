//! Rows of a terminal page: headings, items under a label, commands that can be copied, actions with what they cost.

use crate::TextStyle;
use crate::json::{Action, Impact};
use crate::quote::{columns, fold_command, plain, plain_lines, wrap};

/// Colours, by what they say.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Headings and commands.
    Bold,
    /// Errors, and actions that destroy something.
    Red,
    /// Warnings, open questions, and actions that disrupt something.
    Yellow,
    /// Nothing wrong.
    Green,
    /// Bars beside quotes, counts of what is not shown.
    Dim,
}

/// A page in the making.
#[derive(Debug)]
pub struct Page {
    /// The text so far.
    pub out: String,
    /// Width, colour and amount.
    pub look: TextStyle,
}

impl Page {
    /// An empty page.
    pub fn new(look: TextStyle) -> Self {
        Self { out: String::new(), look }
    }

    /// The text in a colour, if colour is wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if !self.look.color {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => "1",
            Style::Red => "1;31",
            Style::Yellow => "33",
            Style::Green => "1;32",
            Style::Dim => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// A row as it is, without spaces at its end.
    pub fn row(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// An empty row and a title.
    pub fn heading(&mut self, text: &str) {
        self.out.push('\n');
        let text = self.paint(Style::Bold, text);
        self.row(&text);
    }

    /// Prose after a label, continued under its first word.
    pub fn item(&mut self, label: &str, text: &str) {
        let indent = columns(label);
        let rows = wrap(text, self.look.width.saturating_sub(indent));
        for (n, row) in rows.iter().enumerate() {
            let head = if n == 0 { label.to_owned() } else { " ".repeat(indent) };
            self.row(&format!("{head}{row}"));
        }
        if rows.is_empty() {
            self.row(label);
        }
    }

    /// A command after a label, folded so that it can be copied.
    pub fn command(&mut self, label: &str, command: &str) {
        let indent = columns(label);
        let mut label = label.to_owned();
        for line in plain_lines(command) {
            for (n, row) in fold_command(&line, self.look.width.saturating_sub(indent + 2)).iter().enumerate()
            {
                let mark = if n == 0 { "$ " } else { "  " };
                let row = self.paint(Style::Bold, row);
                self.row(&format!("{label}{mark}{row}"));
                label = " ".repeat(indent);
            }
        }
    }

    /// An action with its impact at the end of the sentence, its command below.
    pub fn action(&mut self, label: &str, action: &Action) {
        let impact = format!("[{}]", action.impact.name());
        // The impact is at the end of the sentence, and in colour only once it is placed.
        self.item(label, &format!("{} {impact}", plain(&action.text)));
        if self.look.color && action.impact != Impact::Harmless {
            let style = if action.impact == Impact::Disruptive { Style::Yellow } else { Style::Red };
            let painted = self.paint(style, &impact);
            if self.out.trim_end().ends_with(&impact) {
                self.out.truncate(self.out.trim_end().len() - impact.len());
                self.row_end(&painted);
            }
        }
        if let Some(command) = &action.command {
            self.command(&" ".repeat(columns(label)), command);
        }
    }

    fn row_end(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// How many items are not shown, if there are any.
    pub fn more(&mut self, label: &str, n_left: usize, what: &str) {
        if n_left > 0 {
            let text = format!("and {n_left} more {what}: --verbose shows them");
            let text = self.paint(Style::Dim, &text);
            self.row(&format!("{label}{text}"));
        }
    }
}
