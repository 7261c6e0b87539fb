-- Dips in the trades that `outpace demo` leaves behind:
--   outpace run examples/dips.sql --input ticks=out/ticks.parquet
SELECT symbol, count(*) AS dips, max(top - bottom) AS deepest
FROM ticks MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES STRT.price AS top, LAST(DOWN.price) AS bottom
    PATTERN (STRT DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)
GROUP BY symbol
ORDER BY symbol
