"""What people look at: tables in the terminal, bars, plots and pages."""
