"""Images that are like some, with how certain either is: what is asked, what is searched, what the answers come to."""
