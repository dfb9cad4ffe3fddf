//! What `--dry-run` shows: the devices, the steps of the set-up, and how they are undone.

use serde_json::{Value, json};

use super::Step;

/// A set-up to look at.
#[derive(Debug, Default)]
pub struct Preview {
    /// The devices, each in words and as JSON.
    pub devices: Vec<(String, Value)>,
    /// The steps in order, each with what undoes it.
    pub steps: Vec<(Step, Vec<Step>)>,
    /// What else is to be said.
    pub notes: Vec<String>,
}

impl Preview {
    /// How it is undone, in order.
    fn removal(&self) -> impl Iterator<Item = String> {
        self.steps.iter().rev().flat_map(|(_, undo)| undo.iter().rev().map(Step::to_string))
    }

    /// As one would type it.
    pub fn to_text(&self) -> String {
        let comment = |text: &String| format!("# {text}");
        let mut lines: Vec<String> = self.devices.iter().map(|(words, _)| comment(words)).collect();
        lines.extend(self.steps.iter().map(|(step, _)| step.to_string()));
        lines.extend(self.notes.iter().map(comment));
        lines.push("# at the end".into());
        lines.extend(self.removal());
        lines.join("\n") + "\n"
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let devices: Vec<&Value> = self.devices.iter().map(|(_, device)| device).collect();
        let setup: Vec<String> = self.steps.iter().map(|(step, _)| step.to_string()).collect();
        let removal: Vec<String> = self.removal().collect();
        json!({ "devices": devices, "setup": setup, "removal": removal, "notes": self.notes })
    }
}
