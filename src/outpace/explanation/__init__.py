"""Why a query does what it does: plans in words and pictures, why and why not."""
