"""What a contract looks like on day 200: metrics, alert rules, a dashboard, the record and a page to read."""
