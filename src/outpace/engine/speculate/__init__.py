"""Results that are corrected: what a part of the operator did, so that it can go back."""
