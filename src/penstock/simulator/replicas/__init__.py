"""Leaders and followers of one partition under a controller, stepped by a plain heap: thousands of stories a minute."""
