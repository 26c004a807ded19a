//! The terminal view. Draws a [`Picture`]; knows nothing of where it comes from.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use ringleader_report::quote::{plain, plain_lines, wrap};
use ringleader_watch::view::JobState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::watch::columns::{self, COMMS, Column, RANKS, Width};
use crate::watch::picture::Picture;
use crate::watch::words;

/// Between two drawings.
const REDRAW: Duration = Duration::from_millis(250);

/// How far each list is scrolled, and which one the arrows move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scroll {
    pub(crate) ranks: usize,
    pub(crate) verdict: usize,
    /// The arrows move the verdict's text, else the ranks.
    pub(crate) on_verdict: bool,
}

/// Shows the picture until a user presses q or `stop` is set. The terminal is restored at the end, and by a panic.
///
/// # Errors
/// If the terminal cannot be driven.
pub(crate) fn show(picture: &Mutex<Picture>, stop: &Arc<AtomicBool>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut scroll = Scroll::default();
    let mut outcome = Ok(());
    while !stop.load(Ordering::Relaxed) {
        let now = picture.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Err(error) = terminal.draw(|frame| draw(frame, &now, &mut scroll)) {
            outcome = Err(error);
            break;
        }
        match wait() {
            // A closed terminal is always ready to be read and has no data: asking it for an event never returns.
            Waited::Closed => {
                CLOSED.store(true, Ordering::Relaxed);
                // It cannot be restored, and its end would complain of that to nobody.
                std::mem::forget(terminal);
                return Ok(());
            }
            Waited::Nothing => continue,
            Waited::Input => {}
        }
        match event::poll(Duration::ZERO)
            .and_then(|is_there| if is_there { event::read().map(Some) } else { Ok(None) })
        {
            Ok(Some(event)) if quits(&event) => break,
            Ok(Some(event)) => moved(&event, &mut scroll),
            Ok(None) => {}
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    ratatui::try_restore()?;
    outcome
}

/// The terminal is gone: output is no longer visible.
pub(crate) static CLOSED: AtomicBool = AtomicBool::new(false);

/// What came of waiting for a key.
enum Waited {
    Nothing,
    Input,
    Closed,
}

/// Waits until something is typed, or it is time to draw.
fn wait() -> Waited {
    let input = io::stdin();
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(REDRAW.subsec_nanos()) };
    // Interrupted, as by a window that changes its size: it is redrawn.
    let Ok(n) = poll(&mut fds, Some(&limit)) else { return Waited::Nothing };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if fds.iter().any(|fd| fd.revents().intersects(gone)) {
        Waited::Closed
    } else if n > 0 {
        Waited::Input
    } else {
        Waited::Nothing
    }
}

fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn moved(event: &Event, scroll: &mut Scroll) {
    let Event::Key(key) = event else { return };
    if key.kind == KeyEventKind::Release {
        return;
    }
    if matches!(key.code, KeyCode::Left | KeyCode::Right | KeyCode::Tab) {
        scroll.on_verdict = !scroll.on_verdict;
        return;
    }
    let at = if scroll.on_verdict { &mut scroll.verdict } else { &mut scroll.ranks };
    match key.code {
        KeyCode::Down => *at = at.saturating_add(1),
        KeyCode::Up => *at = at.saturating_sub(1),
        KeyCode::PageDown => *at = at.saturating_add(10),
        KeyCode::PageUp => *at = at.saturating_sub(10),
        KeyCode::Home => *at = 0,
        // Drawing bounds it by what there is.
        KeyCode::End => *at = usize::MAX,
        _ => {}
    }
}

const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().fg(Color::DarkGray);

/// Draws everything. `scroll` is bounded by what there is to see.
pub(crate) fn draw(frame: &mut Frame<'_>, picture: &Picture, scroll: &mut Scroll) {
    let area = frame.area();
    let n_comms = picture.comms.len().clamp(1, 8) as u16;
    let lower = lower_lines(picture, area.width.saturating_sub(2) as usize);
    let lower_height = (lower.len() as u16 + 2).min(area.height / 2).max(4);
    let [head, comms, ranks, below, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(n_comms + 3),
        Constraint::Min(3),
        Constraint::Length(lower_height),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(header(picture), head);
    draw_comms(frame, comms, picture);
    draw_ranks(frame, ranks, picture, scroll);
    draw_lower(frame, below, picture, lower, scroll);
    let other = if scroll.on_verdict { "the ranks" } else { "the text below" };
    let keys = format!(" q quits   up and down scroll   tab: scroll {other}");
    frame.render_widget(Paragraph::new(Span::styled(keys, DIM)), foot);
}

fn header(picture: &Picture) -> Paragraph<'static> {
    let (word, style) = match picture.job {
        JobState::Unseen => ("no rank seen yet", DIM),
        JobState::Starting => ("starting", Style::new().yellow()),
        JobState::Running => ("running", Style::new().green()),
        JobState::Stalled => ("STALLED", BAD),
        JobState::Ended => ("ended", DIM),
    };
    let mut first = vec![
        " ringleader watch ".bold(),
        Span::styled(word, style),
        Span::raw(format!(
            "  {} on {}, {}, seen by {}",
            words::count(picture.n_ranks, "rank"),
            words::count(picture.n_nodes, "node"),
            words::count(picture.n_comms, "communicator"),
            words::means(picture.sees)
        )),
    ];
    if let Some(name) = &picture.name {
        let n_others = picture.others.len();
        first.push(Span::raw(format!("  {} (of {})", plain(name), words::count(n_others + 1, "job"))));
    }
    if let Some(doing) = &picture.doing {
        first.push(Span::styled(format!("  {}…", plain(doing)), Style::new().yellow()));
    }
    let second = match (&picture.slowest, picture.cannot_see.first()) {
        (Some(slowest), _) => format!(
            " slowest: rank {}, {} last, by {:.1} ms",
            slowest.rank,
            if slowest.persistent { "always" } else { "at times" },
            slowest.late_ms
        ),
        (None, Some(text)) => format!(" cannot see: {}", plain(text)),
        (None, None) => String::new(),
    };
    Paragraph::new(vec![Line::from(first), Line::from(second)])
}

fn draw_comms(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let rows = picture
        .comms
        .iter()
        .map(|comm| row(&COMMS, comm).style(if comm.is_stalled { BAD } else { Style::new() }));
    let block = Block::bordered().title(" communicators ");
    frame.render_widget(list(&COMMS, rows.collect()).block(block), area);
}

fn draw_ranks(frame: &mut Frame<'_>, area: Rect, picture: &Picture, scroll: &mut Scroll) {
    let room = area.height.saturating_sub(3) as usize;
    scroll.ranks = scroll.ranks.min(picture.ranks.len().saturating_sub(room));
    let rows = picture
        .ranks
        .iter()
        .skip(scroll.ranks)
        .take(room)
        .map(|rank| row(&RANKS, rank).style(if rank.is_suspect { BAD } else { Style::new() }));
    let block = Block::bordered().title(" ranks ").border_style(mark(!scroll.on_verdict));
    frame.render_widget(list(&RANKS, rows.collect()).block(block), area);
}

fn list<R>(columns: &[Column<R>], rows: Vec<Row<'static>>) -> Table<'static> {
    let widths = columns.iter().map(|column| match column.width {
        Width::Cells(cells) => Constraint::Length(cells),
        Width::Share(share) => Constraint::Fill(share),
    });
    Table::new(rows, widths).header(Row::new(columns.iter().map(|column| column.head)).style(DIM))
}

fn row<R>(columns: &[Column<R>], of: &R) -> Row<'static> {
    Row::new(columns::cells(columns, of).iter().map(|cell| Cell::from(plain(cell))))
}

fn mark(is_active: bool) -> Style {
    if is_active { Style::new().cyan() } else { Style::new() }
}

/// The verdict if there is one, else the alarm, else what was said.
fn lower_lines(picture: &Picture, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for stall in &picture.stalls {
        let text = format!("STALL: {}", words::headline(stall));
        lines.extend(wrap(&text, width.max(20)).into_iter().map(|row| Line::styled(row, BAD)));
    }
    if let Some(text) = &picture.verdict_text {
        lines.extend(plain_lines(text).into_iter().map(Line::from));
        if let Some(bundle) = &picture.bundle {
            lines.push(Line::from(format!("evidence: {}", plain(bundle))));
        }
    }
    if let Some(stacks) = &picture.stacks {
        lines.extend(plain_lines(stacks).into_iter().map(Line::from));
    }
    if lines.is_empty() {
        // Newest first: of a long past, that is what is seen.
        lines.extend(picture.said.iter().rev().map(|said| Line::from(plain(&said.text))));
    }
    lines
}

fn draw_lower(
    frame: &mut Frame<'_>,
    area: Rect,
    picture: &Picture,
    lines: Vec<Line<'static>>,
    scroll: &mut Scroll,
) {
    let title = if picture.verdict_text.is_some() {
        " verdict "
    } else if picture.stalls.is_empty() {
        " so far "
    } else {
        " alarm "
    };
    let room = area.height.saturating_sub(2) as usize;
    scroll.verdict = scroll.verdict.min(lines.len().saturating_sub(room));
    let shown: Vec<Line<'static>> = lines.into_iter().skip(scroll.verdict).take(room).collect();
    let block = Block::bordered().title(title).border_style(mark(scroll.on_verdict));
    frame.render_widget(Paragraph::new(Text::from(shown)).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    use super::*;
    use crate::watch::picture::sample;

    fn drawn(picture: &Picture, scroll: &mut Scroll, size: (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(frame, picture, scroll)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_running_job() {
        insta::assert_snapshot!(drawn(&sample::running(), &mut Scroll::default(), (110, 24)));
    }

    #[test]
    fn a_stalled_job_with_its_verdict() {
        insta::assert_snapshot!(drawn(&sample::stalled(), &mut Scroll::default(), (110, 30)));
    }

    #[test]
    fn before_anything_is_seen_and_in_a_small_window() {
        insta::assert_snapshot!(drawn(&Picture::default(), &mut Scroll::default(), (60, 16)));
        // A window of a few cells draws what it can and does not panic.
        for size in [(1, 1), (5, 3), (20, 6)] {
            drawn(&sample::stalled(), &mut Scroll { ranks: 99, verdict: 99, on_verdict: true }, size);
        }
    }

    #[test]
    fn arrows_scroll_as_far_as_there_is_something() {
        let press = |code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        let mut scroll = Scroll::default();
        moved(&press(KeyCode::End), &mut scroll);
        let seen = drawn(&sample::many_ranks(), &mut scroll, (100, 24));
        assert!(scroll.ranks > 0 && scroll.ranks < 64, "{scroll:?}");
        assert!(seen.contains("63"), "the last rank is seen: {seen}");
        moved(&press(KeyCode::Tab), &mut scroll);
        assert!(scroll.on_verdict);
        moved(&press(KeyCode::Down), &mut scroll);
        assert_eq!(scroll.verdict, 1);
        assert!(quits(&press(KeyCode::Char('q'))));
        assert!(quits(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))));
        assert!(!quits(&press(KeyCode::Char('c'))));
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut picture = sample::running();
        picture.comms[0].name = "\u{1b}[31mred\u{202e}\n".to_owned();
        let seen = drawn(&picture, &mut Scroll::default(), (140, 24));
        assert!(!seen.contains('\u{1b}') && !seen.contains('\u{202e}'), "{seen}");
    }
}
