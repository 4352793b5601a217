"""The paper's experiments: settings, figures and reports."""
