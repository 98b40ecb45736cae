"""The paper's experiments: ranking and classification of one class against the rest."""
