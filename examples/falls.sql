-- Prices that fall three times in a row or more, and rise again, as they come:
--   outpace stream examples/falls.sql --from 'events:stock?rate=1000&keys=20'
MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES STRT.close AS top, LAST(DOWN.close) AS bottom, COUNT(*) AS ticks
    PATTERN (STRT DOWN{3,} UP) WITHIN INTERVAL '1' MINUTE
    DEFINE DOWN AS close < PREV(close), UP AS close > PREV(close)
)
