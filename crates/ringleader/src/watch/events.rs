//! Where events go: standard output as JSON or as lines, and the picture. The screen shows the picture alone.

use std::sync::{Arc, Mutex, PoisonError};

use ringleader_report::quote::{plain, plain_lines};
use ringleader_report::{Detail, text};
use ringleader_watch::engine;
use ringleader_watch::event::{Event, What};
use ringleader_watch::view::View;

use crate::terminal::{self, Color};
use crate::watch::heard::print;
use crate::watch::incident::Judged;
use crate::watch::otlp::Exporter;
use crate::watch::picture::Picture;
use crate::watch::{now_ns, table, words};

/// How events are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventFormat {
    Json,
    Lines {
        /// Standard output is the command's.
        to_error: bool,
    },
    /// The screen shows them.
    Quiet,
}

#[derive(Clone)]
pub(crate) struct Teller {
    form: EventFormat,
    picture: Arc<Mutex<Picture>>,
    /// Which job it describes, once there are several.
    name: Arc<Mutex<Option<String>>>,
    /// What was last said of what is watched: lines say what is new.
    watching: Arc<Mutex<Option<What>>>,
    /// Who else hears of incidents.
    exporter: Option<Exporter>,
}

impl Teller {
    pub(crate) fn new(json: bool, has_screen: bool, has_command: bool, picture: Arc<Mutex<Picture>>) -> Self {
        let form = match (json, has_screen) {
            (true, _) => EventFormat::Json,
            (false, true) => EventFormat::Quiet,
            (false, false) => EventFormat::Lines { to_error: has_command },
        };
        Self { form, picture, name: Arc::default(), watching: Arc::default(), exporter: None }
    }

    /// The same for one of several jobs.
    pub(crate) fn of_job(&self, name: &Arc<Mutex<Option<String>>>, picture: &Arc<Mutex<Picture>>) -> Self {
        Self {
            name: Arc::clone(name),
            picture: Arc::clone(picture),
            watching: Arc::default(),
            ..self.clone()
        }
    }

    /// Incidents are exported by this, too.
    pub(crate) fn exporting(self, exporter: Exporter) -> Self {
        Self { exporter: Some(exporter), ..self }
    }

    pub(crate) fn is_exporting(&self) -> bool {
        self.exporter.is_some()
    }

    fn hear(&self, event: &Event) {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).hear(event);
        if let Some(exporter) = &self.exporter {
            exporter.tell(event, self.name().as_deref());
        }
    }

    fn name(&self) -> Option<String> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, text: String) {
        self.say(&Event::new(now_ns(), What::Note { text }));
    }

    pub(crate) fn say(&self, event: &Event) {
        self.hear(event);
        match self.form {
            // Types with names for keys: printing them cannot fail.
            EventFormat::Json => {
                let event = Event { job: self.name(), ..event.clone() };
                print(&(serde_json::to_string(&event).unwrap_or_default() + "\n"), false);
            }
            EventFormat::Lines { to_error } => {
                let lines = if let What::Watching { .. } = event.what {
                    let mut before = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
                    let lines = words::watching(&event.what, before.as_ref());
                    *before = Some(event.what.clone());
                    lines
                } else {
                    words::lines(event)
                };
                if let Some(lines) = lines {
                    let of = self.name().map_or_else(String::new, |name| format!("[{}] ", plain(&name)));
                    print(&format!("{} {of}{lines}\n", clock(event.at)), to_error);
                }
            }
            EventFormat::Quiet => {}
        }
    }

    /// The answer: as an event, and for people the report as `diagnose` prints it.
    pub(crate) fn verdict(&self, judged: &Judged) {
        let report = serde_json::from_str(&judged.json).unwrap_or_default();
        let shown = text::render(&judged.report, &terminal::look(Color::Never, None, Detail::Usual));
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).verdict_text = Some(shown);
        let event = Event::new(now_ns(), What::Verdict { report });
        let EventFormat::Lines { to_error } = self.form else { return self.say(&event) };
        self.hear(&event);
        let look = terminal::look(Color::Auto, None, Detail::Usual);
        if let Some(name) = self.name() {
            print(&format!("\njob {}:\n", plain(&name)), to_error);
        }
        print(&format!("\n{}\n", text::render(&judged.report, &look)), to_error);
        let stacks = self.picture.lock().unwrap_or_else(PoisonError::into_inner).stacks.clone();
        if let Some(stacks) = stacks {
            let shown = plain_lines(&stacks).join("\n");
            print(&format!("stacks of all ranks, merged:\n{shown}\n"), to_error);
        }
    }

    /// What is to be seen of the job now.
    pub(crate) fn see(&self, view: &View) {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).see(view);
    }

    /// The state of the job, as a table.
    pub(crate) fn table(&self) {
        let picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        print(&table::render(&picture), false);
    }

    /// The state of the job, whatever is due.
    pub(crate) fn once(&self, view: &View) {
        if self.form == EventFormat::Json {
            self.say(&Event::new(view.at_ns, engine::progress(view)));
        } else {
            let of = self.name().map_or_else(String::new, |name| format!("job {}:\n", plain(&name)));
            let picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
            print(&(of + &table::render(&picture)), false);
        }
    }

    /// After the screen is gone: what should not go with it.
    pub(crate) fn last_words(&self) {
        let picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = &picture.verdict_text {
            print(text, false);
        }
        if let Some(bundle) = &picture.bundle {
            print(&format!("evidence: {}\n", plain(bundle)), false);
        }
        if let Some(how) = &picture.ended {
            print(&format!("ended: {}\n", plain(how)), false);
        }
    }
}

/// `08:21:32` of the day, UTC: logs of many nodes are read side by side.
fn clock(at: f64) -> String {
    let of_day = (at as i64).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}
